"""Do the tests notice? Each mutant is the code with one small mistake; the tests of its folder run on it.

Tests that need no broker run first, since they are quick; mutants that survive are tried with those that need one.

This package has the sample, its trial, and the list of mutants that are not mistakes.

    python -m tests.mutants [--share 1.0] [--seed 11] [--no-brokers] [AREA...]

* `making.py`: all mutants of a file. The operators are mutmut's, and two of our own: a removed call, and a negated
  condition. Wording, arguments and types are left alone: mypy notices those.
* `areas.py`: which code, which tests, and how many mutants must be noticed.
* `covering.py`: which tests execute a line: only those run, the nearest and quickest first.
* `trial.py`: a copy of the tree, in which one mutant after another is tried.
* `running.py`: a process that runs pytest in forks, since starting it takes longer than most trials.
* `equivalent.txt`: mutants that change nothing, each with the reason.
* `__main__.py`: the command; exit code 1 if an area is below its goal, 2 if there is no result.

Why mutmut's own runner is not used: it mutates functions within one process, so it leaves out constants, properties and
code that starts its own process, and it cannot sample; and `src/muster` is made of links.
"""
