"""What the proxy costs, measured on this machine as ratios taken in one run: ``python -m bench``."""
