"""One controller for all roles, in the words of controller-runtime and client-go.

**Words.** A *cache* holds the documents of one cluster, with indexes; it alone judges which of two
states of an object is newer. A *key* names what is decided about, usually an object. The *work
queue* knows which keys are ready, busy (a write is under way) or held (it failed). The *pool* has
the threads that write. The *writer* sends one request, behind the lease's fence and the cluster's
switch. The *recorder* writes Kubernetes Events. The *controller* is the loop around them; a *role*
is a subclass of it. *Faults* is where one key's fault ends.

**The life of a key.**

1. A watch tells of an object; the event goes through the inbox to the deciding thread, the only one
   that touches cache and queue. ``take`` puts the document into the cache; where that was news,
   ``keys_of`` says whom it concerns, and those keys are ready.
2. ``handle`` is called with every key that is ready, neither busy nor held; by default it asks
   ``decide(key)``: by the cache alone, what is the next write? None: nothing is to be done.
3. ``send`` makes the key busy and gives the write to the pool. What happens to it meanwhile is
   remembered.
4. The answer comes through the inbox. What the write showed goes into the cache as an event would;
   the key is ready again, and ``decide`` says what is next, until it says None.
5. A write that failed holds its key, longer with each failure in a row (a first lost race costs
   nothing). When the hold ends, the objects concerned are read again, into the cache; then the key
   is ready.
6. ``queue.add_at(key, time)`` asks for a look that time alone makes due; a sweep (``resync_s``)
   looks at ``all_keys`` now and then.

**What one key raises** parks that key alone, with a growing wait, whatever was being done: reading
an event (it is tried again, or replaced by a newer one), deciding, or writing. It is logged once
per change (``key_parked``), counted, and stands on the cluster's page until it went well. What ends
a shift is a lost lease, and what opening raises: a wrong cluster, a configuration that makes no
sense. A database that fails makes the turn be tried again, and no key is blamed. Roles that work in
batches catch per key and call ``park``, or ``faults.park`` with a name of their own.

**What a role gives.** ``watched`` (its kinds, in the order in which first lists are taken in), its
indexes, ``keys_of`` where keys are not those of the objects, ``decide``, ``says`` (what people call
a key). Where it truly differs it overrides a hook: ``take``, ``look`` (once a turn), ``handle``,
``answered``, ``failed``, ``reread``, ``cache_of`` (several clusters), ``turn``; ``concerned`` where
a key is a place of work, as a workload on one worker, and another key is looked at afterwards. Rows
that the database refuses are a key's fault, see ``rows``. No role has a back-off, pool, cache,
inbox or writer of Events of its own. ``budget_check`` is the example.
"""
