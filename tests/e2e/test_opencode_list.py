"""What OpenCode says when its own to-do list cannot be written, held against what is said in its place."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.turns import ToolCall
from tests.e2e.stage import Stage, call_turns, forced, result_of

# A plugin runs in the program's own process. This one lets another connection act on the database just before
# the list is written there, and closes it when the write has failed, so that nothing else of the session
# meets it.
_PLUGIN = """
import { Database } from "bun:sqlite"
import { writeFileSync } from "node:fs"

const query = Database.prototype.query
Database.prototype.query = function (sql, ...rest) {
  if (!sql.startsWith('delete from "todo"')) return query.call(this, sql, ...rest)
  const other = new Database(this.filename)
  const noted = (act) => {
    try { return act() } catch (error) { writeFileSync("SEEN", error.message); other.close(); throw error }
  }
  other.run("ACT")
  query.call(this, "select count(*) from session").get()  // a connection sees at its next query what is gone
  const statement = noted(() => query.call(this, sql, ...rest))
  const all = statement.all
  statement.all = (...values) => noted(() => all.apply(statement, values))
  return statement
}
export const List = async () => ({})
"""


@pytest.mark.parametrize(
    ("kind", "act", "seen"),
    [
        ("locked", "BEGIN IMMEDIATE", "database is locked"),
        ("locked", "BEGIN EXCLUSIVE", "database is locked"),
        ("not_found", "DROP TABLE todo", "no such table: todo"),
    ],
)
def test_it_says_what_is_said_in_its_place(
    stage: Callable[[str], Stage], kind: str, act: str, seen: str
) -> None:
    scene = stage("opencode-anthropic")
    note = scene.folder / "seen.txt"
    folder = scene.home / ".config" / "opencode" / "plugin"
    folder.mkdir(parents=True)
    (folder / "list.js").write_text(_PLUGIN.replace("SEEN", str(note)).replace("ACT", act), "utf-8")
    lists = [
        ToolCall("todowrite", {"todos": [{"content": what, "status": "pending", "priority": "high"}]})
        for what in ("look", "mend")
    ]
    played = scene.play(
        call_turns(*lists, scene.speech.runs("echo end")),
        forced({"tool": "todowrite", "nth": 2, "kind": kind}),
    )
    own, injected = (result_of(played.turns[-1], call) for call in range(2))
    assert note.read_text("utf-8") == seen
    assert [record["kind"] for record in played.decisions_of("todowrite")] == [None, kind]
    assert (injected.text, injected.is_error) == (own.text, True)
    assert own.is_error
    assert "end" in result_of(played.turns[-1], 2).text
