# The first seeds each test, and has the fixture `reports`; the second ends a run with the capability table.
pytest_plugins = ["aot_core.testing.fixtures", "aot_core.testing.pytest_plugin"]
