"""What tests of Deputy and of its plugins are made with: fakes, clocks and conformance suites."""
