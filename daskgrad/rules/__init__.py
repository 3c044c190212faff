"""Rules: derivatives that users define instead of a trace.

``custom_vjp`` takes a pullback and a tangent, ``implicit`` the equation that a result solves, and
``differences`` needs only the values of a black box. A function with a rule is one node of a trace,
whatever it does inside. All of this runs on workers.
"""
