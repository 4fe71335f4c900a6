"""A small web site for the tools that fetch: each page is about one word, and every visit leaves a mark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

VISITS = "visits.txt"
_ROWS = 12


class _Pages(BaseHTTPRequestHandler):
    """``/<word>`` is a page of plain text, when there is a folder of that name below ``root``."""

    def __init__(self, root: Path, *args: object) -> None:
        self._root = root
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        word = self.path.strip("/")
        folder = self._root / word
        if not word.isalnum() or not folder.is_dir():
            self.send_error(404)
            return
        with (folder / VISITS).open("a", encoding="ascii") as visits:
            visits.write("GET\n")
        page = "".join(f"row {n} of {word} is {n * 11}\n" for n in range(1, _ROWS + 1)).encode("ascii")
        self.send_response(200)
        self.send_header("content-type", "text/plain; charset=utf-8")
        self.send_header("content-length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:
        """The visits are the log."""


@contextmanager
def small_site(root: Path) -> Iterator[str]:
    """Serves pages about the folders in ``root`` (a visit is a line of VISITS in the folder) and gives the
    address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Pages, root))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="site", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
