"""The live page: a function of the run folders on disk. Reads only; what it shows of a run comes from its run.db.

catalog   which runs there are, and the id that the page knows each by
tail      the rows of run.db that are new since the last look
buckets   curves of any number of rows in a bounded number of points
members   the agents: who does what, how fast, how late; agent_returns: how well, over the run
follow    one run: its aggregates, and what of them changed since a cursor
timeline  who works when, in a window of the run
guard     who may look: Host, token, and the headers that keep the page to itself
app       the routes; serve: the socket and the URL
"""
