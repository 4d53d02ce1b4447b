"""How gunicorn serves the site: `gunicorn -c deploy/gunicorn_conf.py`.

Threads, since a request here waits more than it computes; in the old way of submitting it waits for a whole grading.
"""

wsgi_app = "deploy.wsgi"
workers = 1
threads = 16
# Newer versions open a socket under the home directory for remote control; nobody here needs that door.
control_socket_disable = True
