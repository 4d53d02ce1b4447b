"""Sets Django up before any module here imports a model, which Django refuses otherwise."""

import tests.support.site  # noqa: F401
