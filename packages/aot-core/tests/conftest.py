pytest_plugins = ["aot_core.testing.fixtures"]
