"""Integrals, as in ``scipy.integrate``: of samples, of functions, and of differential equations."""

from daskgrad.scipy.initial_values import solve_ivp as solve_ivp
from daskgrad.scipy.quadrature import quad as quad
from daskgrad.scipy.samples import cumulative_trapezoid as cumulative_trapezoid
from daskgrad.scipy.samples import simpson as simpson
from daskgrad.scipy.samples import trapezoid as trapezoid
