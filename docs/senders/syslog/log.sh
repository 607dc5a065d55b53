logger --server 127.0.0.1 --port 6514 --tcp --rfc5424 --tag script "$1"
