"""Long checks outside the test suite: hostile input (`fuzz`) and killed or starved work (`faults`)."""
