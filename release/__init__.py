"""What a release consists of: `python -m release` builds it into `dist/` (README.md)."""
