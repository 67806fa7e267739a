"""Do the tests notice? Each mutant is the code with one small mistake, and the narrow tests of its folder run on it.

First those that need no broker, since they are quick; what they do not notice is tried with those that need one.

What belongs here: the sample, its trial, and the list of mutants that are no mistakes. What it must not know: what is
right.

    python -m tests.mutants [--share 1.0] [--seed 11] [--no-brokers] [AREA...]

* `making.py`: all mutants of a file. The operators are mutmut's, and two of our own: a call that is left out, a
  condition that is turned round. Wording, arguments and types are left alone: mypy notices those.
* `areas.py`: which code, which tests, and how many mutants are to be noticed.
* `covering.py`: which tests come by a line: only those are run, the nearest and quickest first.
* `trial.py`: a copy of the tree, in which one mutant after another is tried.
* `running.py`: a process that runs pytest in forks, since starting it takes longer than most trials.
* `equivalent.txt`: mutants that change nothing, each with the reason.
* `__main__.py`: the command; exit code 1 when an area is under its goal, 2 when nothing can be said.

Why mutmut's own runner is not used: it mutates functions within one process, so constants, properties and whatever
starts a process of its own are left out, and it knows no sample; and `src/muster` is made of links.
"""
