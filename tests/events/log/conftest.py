"""The contract suite is no test module by its name; its assertions are to be explained like those of one."""

import pytest

pytest.register_assert_rewrite("tests.events.log.contract")
