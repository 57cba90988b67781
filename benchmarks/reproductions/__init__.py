"""Experiments of the papers done again: the parts of ``benchmarks/papers.py``, one module per paper.

An *item* is a table or figure of a paper: an :class:`~benchmarks.reproductions.item.Item` in the ``ITEMS`` of its
paper's module, with a function that is given what the command line says
(:class:`~benchmarks.reproductions.item.Given`) and returns an :class:`~benchmarks.reproductions.item.Outcome`: tables
with the paper's figures beside ours, and what differs and why. Where data it needs are not
there it raises :class:`~benchmarks.reproductions.item.Skipped` and the other items go on.
:mod:`~benchmarks.reproductions.page` keeps what came out. Replays are jobs of :mod:`benchmarks.search`
(:meth:`Given.run <benchmarks.reproductions.item.Given.run>`), so that what has been run before is not run again.
"""
