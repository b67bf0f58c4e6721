"""Serves one page behind a limiter library: limiters_app.py NAME ADDRESS PORT. Each runs in one process."""

import sys


def flask_limiter(limit, strategy, fields):
    from flask import Flask
    from flask_limiter import Limiter
    from flask_limiter.util import get_remote_address

    app = Flask(__name__)
    Limiter(get_remote_address, app=app, default_limits=[limit], storage_uri="memory://", strategy=strategy,
            headers_enabled=fields)
    app.route("/")(lambda: "page")
    return wsgi(app)


def slowapi():
    from fastapi import FastAPI, Request
    from slowapi import Limiter, _rate_limit_exceeded_handler
    from slowapi.errors import RateLimitExceeded
    from slowapi.util import get_remote_address

    limiter, app = Limiter(key_func=get_remote_address), FastAPI()
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)

    @app.get("/")
    @limiter.limit("7/second")
    async def page(request: Request):
        return "page"

    def serve(address, port):
        import uvicorn

        uvicorn.run(app, host=address, port=port, log_level="warning")

    return serve


def django(status):
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpResponse
    from django.urls import path

    caches = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="none", CACHES=caches,
                       SILENCED_SYSTEM_CHECKS=["django_ratelimit.E003", "django_ratelimit.W001"])
    from django_ratelimit.decorators import ratelimit

    @ratelimit(key="ip", rate="40/5s", block=False)
    def page(request):
        limited = getattr(request, "limited", False)
        return HttpResponse("slower", status=status) if limited else HttpResponse("page")

    globals()["urlpatterns"] = [path("", page)]
    return wsgi(get_wsgi_application())


def wsgi(app):
    def serve(address, port):
        import waitress

        waitress.serve(app, host=address, port=port, threads=8, _quiet=True)

    return serve


APPS = {
    "flask-window": lambda: flask_limiter("35 per 5 second", "fixed-window", False),
    "flask-moving": lambda: flask_limiter("60 per 5 second", "moving-window", True),
    "slowapi": slowapi,
    "django-429": lambda: django(429),
    "django-403": lambda: django(403),
}

if __name__ == "__main__":
    name, address, port = sys.argv[1:]
    APPS[name]()(address, int(port))
