"""The files of deploy/: each by its own schema or tool, as far as there is one."""
