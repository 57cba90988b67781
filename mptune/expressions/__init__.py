"""Expressions over named values: parsed to a whitelisted tree, evaluated for one row or many, never run as code."""

from mptune.expressions.expression import Expression

__all__ = ["Expression"]
