"""Public conformance suites: test classes to subclass, which tell whether an extension does what mptune expects of it.

One module for each extension point. They are collected by pytest and do not import it.
"""
