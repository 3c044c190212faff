"""Rules: derivatives that users bring along instead of a trace.

``custom_vjp`` brings a pullback and a tangent, ``implicit`` the equation that a result solves, and
``differences`` ask a black box for its values alone. A function with a rule is one node of a trace,
whatever it does inside. All of it runs on workers.
"""
