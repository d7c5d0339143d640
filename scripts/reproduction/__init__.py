"""The parts of docs/reproduction.md, each a function from results to lines of Markdown."""
