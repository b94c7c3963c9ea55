"""Differentiated programs, and their text form."""

import numpy as np

from shardir import parse
from shardir.ir.module import Function, Module
from shardir.verify.verifier import verify


def function(text: str) -> Function:
    return parse(text).main


def print_verified(*functions: Function) -> str:
    module = Module((), functions)
    verify(module)
    assert str(parse(str(module))) == str(module)
    return str(module)


def normal(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape) for shape in shapes]


SCAN = """\
func @run(
  %c0: f64[2],
  %xs: f64[5, 2],
  %w: f64[2, 2],
) -> (f64[2], f64[5, 2]) {
  %c, %ys = scan(%c0, %xs, carries=1, length=5) : f64[2], f64[5, 2] {
    (%c1: f64[2], %x: f64[2]) =>
    %h = dot(%c1, %w, dims="i,ij->j") : f64[2]
    %z = mul(%h, %x) : f64[2]
    %y = tanh(%z) : f64[2]
    yield %y, %h
  }
  return %c, %ys
}
"""


CASE = """\
func @choose(
  %i: i32[],
  %x: f64[2],
  %y: f64[2],
) -> (f64[2]) {
  %r = case(%i) : f64[2] {
    %s = sin(%x) : f64[2]
    %t = tanh(%s) : f64[2]
    %u = mul(%t, %y) : f64[2]
    yield %u
  } {
    %e = exp(%y) : f64[2]
    yield %e
  } {
    yield %x
  }
  return %r
}
"""
