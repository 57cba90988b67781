"""How well mptune searches, beside its peers: the parts of ``benchmarks/search_quality.py``.

A *section* answers one question (``timing``: who is nearest to the optimum on recorded spaces?). It is one module
of this package, named like the section, with a class that derives from :class:`~benchmarks.search.section.Section`
and is entered in ``benchmarks.search.section.SECTIONS``:

- ``jobs(settings)`` lists what is to run: one :class:`~benchmarks.search.cells.Job` per space and tool, for some
  seeds. A job names a *target*, a function ``module:function`` that is given the job's settings (JSON) in a fresh
  process of one thread and returns what to call with each seed: ``target(settings)(seed) -> result`` (JSON).
- ``report(settings, results)`` turns the results into a :class:`~benchmarks.search.report.Report`: Markdown and a JSON
  document.

:mod:`~benchmarks.search.tools` has the target nearly every section wants: ``replay`` runs a tool, which is a strategy
of mptune or a peer of :mod:`~benchmarks.search.peers`, on a recorded space (or on one derived from it: a settings key
``space`` names any function that makes a :class:`~mptune.run.Run`) and returns the best value
after each evaluation. ``tools.simulations`` makes :class:`~mptune.tuning.simulation.Simulation` objects of the results,
so that :class:`~mptune.tuning.comparison.Comparison` computes every figure the same way for everyone.

:mod:`~benchmarks.search.runner` runs the jobs in parallel processes; each finished (section, space, tool, seed) is one
line of the cache in ``--work``, so a benchmark that was stopped goes on where it was. A line counts only as long as
what it depends on is the same: the settings, the files the job names, the version of the tool.

An evaluation is the same for everyone: the first time one of the recorded configurations is run, whether it fails on
the device or not. Repeated proposals and proposals that break a known constraint cost nothing.
"""
