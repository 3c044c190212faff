"""A Stan model as a function in Python, as BridgeStan makes it, with httpstan's headers."""

import ctypes
import json
import subprocess
import tempfile
from pathlib import Path

import httpstan
import numpy as np

STAN, HERE = Path(httpstan.__file__).parent, Path(__file__).parent
BRIDGE = r"""
#include <stan/io/json/json_data.hpp>
#include <stan/model/log_prob_grad.hpp>
#include <stan/math/prim/core/init_threadpool_tbb.hpp>
#include <sstream>
extern "C" void* make(const char* text) {
  stan::math::init_threadpool_tbb(1);
  std::istringstream in{std::string(text)};
  stan::json::json_data data(in);
  return &new_model(data, 1, &std::cerr);
}
extern "C" double log_density(void* model, const double* x, double* g, int n) {
  std::vector<double> parameters(x, x + n), gradient;
  std::vector<int> none;
  auto& base = *static_cast<stan::model::model_base*>(model);
  double value = stan::model::log_prob_grad<true, false>(
      base, parameters, none, gradient, &std::cerr);
  std::copy(gradient.begin(), gradient.end(), g);
  return value;
}
"""


def model(name, given):
    folder = Path(tempfile.mkdtemp(prefix="stan-"))
    source, library = folder / "model.cpp", folder / "model.so"
    stanc = [STAN / "stanc", "--O1", "--name", "model", "--o", source, HERE / f"{name}.stan"]
    subprocess.run(stanc, check=True)
    source.write_text(source.read_text() + BRIDGE)
    flags = ["-std=c++17", "-O3", "-fPIC", "-shared", "-w", "-DSTAN_THREADS", "-D_REENTRANT"]
    headers, libraries = ["-DBOOST_DISABLE_ASSERTS", "-I", STAN / "include"], STAN / "lib"
    linked = ["-L", libraries, "-ltbb", f"-Wl,-rpath,{libraries}"]
    subprocess.run(["g++", *flags, *headers, source, "-o", library, *linked], check=True)
    built = ctypes.CDLL(library)
    built.make.restype, built.log_density.restype = ctypes.c_void_p, ctypes.c_double
    built.log_density.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    made = built.make(json.dumps(given).encode())

    def both(x):
        gradient = np.empty(len(x))
        return built.log_density(made, x.ctypes.data, gradient.ctypes.data, len(x)), gradient

    return both
