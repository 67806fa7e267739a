"""The kinds of faults, one file each; what they have in common is in fault.py.

fault.py        the stage on which a fault happens, and the marks that it leaves
takeover.py     a process is killed, and does not come back
restart.py      every process is stopped in good order and started again, one after the other
fence.py        another writer claims partitions while their owner serves them
partition.py    the network between a process and its log, or its clients, is cut for a while
slow_broker.py  the brokers that have the log answer late for a while
by_command.py   a command of the operator's stops or restarts a process of a running service
"""
