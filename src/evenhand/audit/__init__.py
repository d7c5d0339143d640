"""Recommendations of any system, against train and test: how accurate, how biased, how certain.

`run_audit.audit` is `eh.audit`; what it returns is in `result`.
"""
