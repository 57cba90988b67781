"""Few precision parameters for many type classes."""

import pytest

from mptune.adopt.classing import type_classes
from mptune.adopt.grouping import parameters_of
from mptune.adopt.reading import read

PROGRAM = """
__constant__ double table[4];
__global__ void k(double* u, const double* v, const float* w, double factor) {
  __shared__ double tile[32];
  double sum = 0;
  double first = v[0];
  double last = w[0];
  float narrow = w[1];
  for (int i = 0; i < 4; i++) { sum += table[i] * first; }
  tile[threadIdx.x] = sum;
  u[0] = tile[0] * factor + last + narrow;
}
int main() {
  double *u, *v; float *w;
  cudaMalloc(&u, 8); cudaMalloc(&v, 8); cudaMalloc(&w, 8);
  k<<<1, 1>>>(u, v, w, 1.0);
}
"""


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("grouping") / "many.cu"
    path.write_text(PROGRAM)
    return type_classes(read([path])).classes


def test_classes_have_parameters_of_their_own_while_there_are_few(classes):
    assert parameters_of(classes, len(classes)) == {each.name: f"{each.name}_type" for each in classes}


def test_single_numbers_share_first_and_those_that_come_last_in_the_program(classes):
    found = parameters_of(classes, len(classes) - 1)
    assert [name for name, parameter in found.items() if parameter == "work_type"] == ["first", "last"]
    assert len(set(found.values())) == len(classes) - 1


@pytest.mark.parametrize("limit", range(2, 11))
def test_there_are_no_more_parameters_than_allowed(classes, limit):
    found = parameters_of(classes, limit)
    assert len(set(found.values())) == min(limit, len(classes))
    scalars = {}
    for each in classes:
        scalars.setdefault(found[each.name], set()).add(each.scalar)
    assert all(len(types) == 1 for types in scalars.values())


def test_buffers_share_only_when_everything_else_does(classes):
    found = parameters_of(classes, 5)
    assert {name: found[name] for name in ("u", "v", "w")} == {"u": "u_type", "v": "v_type", "w": "w_type"}
    assert set(found.values()) == {"u_type", "v_type", "w_type", "value_type", "narrow_type"}


def test_each_type_of_the_program_has_a_parameter_at_least(classes):
    assert set(parameters_of(classes, 1).values()) == {"program_type", "float_program_type"}
