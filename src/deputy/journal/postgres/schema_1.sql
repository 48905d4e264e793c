-- Runs in schema `deputy`: the search path of every connection of Deputy names it.

-- The words of SQLite in statements that both stores share.
CREATE DOMAIN blob AS bytea;
CREATE FUNCTION instr(whole bytea, part bytea) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT position(part in whole) > 0';

-- The truth. Appended, never changed; removed only with the whole tree of runs it belongs to.
-- A position (id) is the transaction's id and the place within it, so that followers read in an order in which no
-- earlier record can appear later: see `horizon`.
CREATE TABLE events (
    id bigint NOT NULL, run text NOT NULL, seq bigint NOT NULL, key text NOT NULL, at float8 NOT NULL,
    clock float8 NOT NULL, kind text NOT NULL, body bytea NOT NULL, sum bytea NOT NULL,
    PRIMARY KEY (run, seq), UNIQUE (run, key));
CREATE INDEX events_by_id ON events (id);

-- Derived: the state of each run as its events leave it, written in the same transaction.
-- No index has a column that a turn changes. `login` added the run.
CREATE TABLE runs (
    run text PRIMARY KEY, parent text, root text NOT NULL, is_live boolean NOT NULL, is_settled boolean NOT NULL,
    last_at float8 NOT NULL, ended_at float8, state bytea NOT NULL, sum bytea NOT NULL,
    login name NOT NULL DEFAULT session_user) WITH (fillfactor = 60);
CREATE INDEX runs_live ON runs (run) WHERE is_live;
CREATE INDEX runs_unsettled ON runs (run) WHERE NOT is_settled;
CREATE INDEX runs_by_root ON runs (root, run);
CREATE INDEX runs_by_parent ON runs (parent, run) WHERE parent IS NOT NULL;
CREATE INDEX runs_by_age ON runs (ended_at) WHERE ended_at IS NOT NULL;

-- A role that may not carry out runs adds only the first record of a new tree, and that a result of its login was
-- delivered: see roles.sql. The owner of the tables may do everything.
CREATE FUNCTION may_carry_out() RETURNS boolean LANGUAGE sql AS 'SELECT true';
-- Stored JSON; jsonb has no zero byte.
CREATE FUNCTION read_json(body bytea) RETURNS jsonb LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS
    $$SELECT replace(convert_from(body, 'utf8'), '\u0000', '\u0001')::jsonb$$;
-- Whether the first record of a run begins a tree of its own.
CREATE FUNCTION begins_tree(run text, body bytea) RETURNS boolean LANGUAGE plpgsql IMMUTABLE
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    start jsonb := deputy.read_json(body);
BEGIN
    RETURN coalesce(CASE (regexp_match(encode(substring(body FROM 1 FOR 40), 'escape'), '^\{"v":\d+,"kind":"(\w+)"'))[1]
        WHEN 'run_opened' THEN start #>> '{lineage,root_id}' = run
        WHEN 'requested' THEN start #>> '{request,caller,root_id}' = run AND start ->> 'parent' IS NULL
        END, false);
END $$;
ALTER TABLE events ENABLE ROW LEVEL SECURITY;
CREATE POLICY events_read ON events FOR SELECT USING (true);
CREATE POLICY events_remove ON events FOR DELETE USING (true);
CREATE POLICY events_add ON events FOR INSERT WITH CHECK (
    has_function_privilege('deputy.may_carry_out()', 'execute')
    OR (seq = 1 AND key = 'requested' AND deputy.begins_tree(run, body))
    OR (key LIKE 'delivered:%' AND seq = 1 + (SELECT max(e.seq) FROM deputy.events e WHERE e.run = events.run)
        AND EXISTS (SELECT 1 FROM deputy.runs r WHERE r.run = events.run AND NOT r.is_live AND r.login = session_user)
        AND encode(body, 'escape') ~ '^\{"v":\d+,"kind":"delivered"(,"to":"[^"\\]*")?\}$'));
-- The same for states: that of a new tree, and of an ended run of its login that only its delivery changes.
CREATE FUNCTION check_state() RETURNS trigger LANGUAGE plpgsql SET search_path = deputy, pg_temp AS $$
DECLARE
    changed text[] := ARRAY['seq', 'last_at', 'last_clock', 'is_delivered'];
    body jsonb := read_json(NEW.state);
BEGIN
    IF length(NEW.run) > 200 OR NEW.run ~ '[[:cntrl:]]' THEN
        RAISE invalid_parameter_value USING MESSAGE = 'an id is 1 to 200 printable characters';
    END IF;
    IF NEW.login = session_user AND NEW.parent IS NULL AND NEW.root = NEW.run
        AND body ->> 'run' = NEW.run AND body ->> 'parent' IS NULL AND body #>> '{lineage,root_id}' = NEW.run THEN
        -- The rest of an upsert is an update.
        IF TG_OP = 'INSERT' THEN
            RETURN NEW;
        END IF;
        IF OLD.login = session_user AND OLD.run = NEW.run AND NOT OLD.is_live AND NOT NEW.is_live
            AND body - changed = read_json(OLD.state) - changed THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE insufficient_privilege USING MESSAGE = 'this role may not carry out runs';
END $$;
CREATE TRIGGER runs_checked BEFORE INSERT OR UPDATE ON runs FOR EACH ROW
    WHEN (NOT has_function_privilege('deputy.may_carry_out()', 'execute')) EXECUTE FUNCTION check_state();

-- One heartbeat per process, by the clock of the database; `batch` tells after a lost COMMIT whether it happened.
-- A process belongs to the login that named it first: no other login writes for it, or removes it while it is alive.
-- `clock_offset`: how far the clock of its machine is ahead of the database's; `keys`: names of variables, never values.
CREATE TABLE owners (
    owner text PRIMARY KEY, beat timestamptz NOT NULL, batch bigint NOT NULL, host text NOT NULL DEFAULT '',
    version text NOT NULL DEFAULT '', labels text[] NOT NULL DEFAULT '{}', slots integer NOT NULL DEFAULT 0,
    keys text[] NOT NULL DEFAULT '{}', clock_offset float8 NOT NULL DEFAULT 0, draining boolean NOT NULL DEFAULT false, login name NOT NULL DEFAULT session_user) WITH (fillfactor = 50);
ALTER TABLE owners ENABLE ROW LEVEL SECURITY;
CREATE POLICY owners_read ON owners FOR SELECT USING (true);
CREATE POLICY owners_add ON owners FOR INSERT WITH CHECK (login = session_user);
CREATE POLICY owners_change ON owners FOR UPDATE USING (login = session_user) WITH CHECK (login = session_user);
CREATE POLICY owners_remove ON owners FOR DELETE
    USING (login = session_user OR beat < clock_timestamp() - interval '1 hour');

-- One lease per run; the lock of its row is the fence.
-- A run with a `queue` is carried out by workers. While it is live, exactly one of these holds: a process owns it, it
-- `is_placed` on its queue, or it `is_parked` until a message comes or a child among `awaits` ends.
-- `placed` counts its placements: a worker that is handed an earlier one leaves the run alone. `lost_owner` was silent.
CREATE TABLE leases (
    run text PRIMARY KEY, owner text, epoch bigint NOT NULL, queue text, placed bigint NOT NULL DEFAULT 0,
    is_placed boolean NOT NULL DEFAULT false, is_parked boolean NOT NULL DEFAULT false, placed_at timestamptz,
    awaits text[] NOT NULL DEFAULT '{}', lost_owner text) WITH (fillfactor = 70);
CREATE INDEX leases_by_owner ON leases (owner) WHERE owner IS NOT NULL;
CREATE INDEX leases_placed ON leases (placed_at) WHERE is_placed;

-- Messages to runs; each is taken once, in the transaction that makes it an event.
CREATE TABLE inbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run text NOT NULL, topic text NOT NULL, key text NOT NULL,
    body bytea NOT NULL, sum bytea NOT NULL, is_taken boolean NOT NULL DEFAULT false, UNIQUE (run, key));
CREATE INDEX inbox_waiting ON inbox (run, topic) WHERE NOT is_taken;
-- Only a role that may answer sends more than a cancel: see roles.sql. The owner of the tables may do everything.
CREATE FUNCTION may_answer() RETURNS boolean LANGUAGE sql AS 'SELECT true';
ALTER TABLE inbox ENABLE ROW LEVEL SECURITY;
CREATE POLICY inbox_read ON inbox FOR SELECT USING (true);
CREATE POLICY inbox_take ON inbox FOR UPDATE USING (true);
CREATE POLICY inbox_remove ON inbox FOR DELETE USING (true);
CREATE POLICY inbox_send ON inbox FOR INSERT
    WITH CHECK (topic = 'cancel' OR has_function_privilege('deputy.may_answer()', 'execute'));

-- Progress for watchers: a ring per run, never folded.
CREATE TABLE progress (
    id bigint NOT NULL, run text NOT NULL, slot integer NOT NULL, at float8 NOT NULL, body bytea NOT NULL,
    PRIMARY KEY (run, slot));
CREATE INDEX progress_by_id ON progress (id);

-- Raised by every removal of records. It begins at random: a new store never continues the cursors of another.
CREATE TABLE generation (number bigint NOT NULL);
INSERT INTO generation VALUES ((random() * 1073741823)::bigint);

CREATE TABLE pins (run text PRIMARY KEY);
CREATE TABLE rate_limits (
    account text PRIMARY KEY, held_until float8 NOT NULL, last_start float8 NOT NULL,
    limited_until float8 NOT NULL DEFAULT 0, shared_limit bytea NOT NULL DEFAULT '{}');
CREATE TABLE errors (
    id text PRIMARY KEY, first_at float8 NOT NULL, last_at float8 NOT NULL, count bigint NOT NULL,
    body bytea NOT NULL, sum bytea NOT NULL);
CREATE TABLE nested (id text PRIMARY KEY, above text NOT NULL, root text NOT NULL, body bytea NOT NULL);
CREATE INDEX nested_by_root ON nested (root);

-- The accounts of trees with a cap, and the spawns of all trees with a quota. `account` has the caps, what was spent and
-- what is reserved; `above` are the accounts above it, the nearest first; `own` is what the run itself adds to them,
-- which agrees with its records whenever a process takes it (`epoch`).
CREATE TABLE budgets (
    run text PRIMARY KEY REFERENCES runs ON DELETE CASCADE, root text NOT NULL, above text[] NOT NULL,
    epoch bigint NOT NULL, is_counted boolean NOT NULL, account bytea NOT NULL, own bytea NOT NULL)
    WITH (fillfactor = 50);
CREATE INDEX budgets_by_root ON budgets (root) WHERE is_counted;
-- Reservations: of a call, which falls with the epoch of its run; or, without an epoch, of a nested process.
CREATE TABLE holds (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run text NOT NULL REFERENCES runs ON DELETE CASCADE,
    root text NOT NULL, epoch bigint, nested text UNIQUE, body bytea NOT NULL);
CREATE INDEX holds_by_root ON holds (root);
CREATE INDEX holds_by_run ON holds (run);
CREATE TABLE blobs (hash bytea PRIMARY KEY, body bytea NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
-- Snapshots and branches of work as git bundles, whose parts are blobs. A bundle builds upon the commits of `needs`.
CREATE TABLE bundles (
    repository text NOT NULL, tip text NOT NULL, needs text, branch text NOT NULL, parts bytea[] NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(), body bytea NOT NULL, PRIMARY KEY (repository, tip),
    FOREIGN KEY (repository, needs) REFERENCES bundles (repository, tip));
CREATE INDEX bundles_by_needs ON bundles (repository, needs);
CREATE INDEX bundles_by_branch ON bundles (branch, at) WHERE branch <> '';
CREATE INDEX bundles_by_part ON bundles USING gin (parts);
CREATE TABLE bundle_uses (
    run text NOT NULL, repository text NOT NULL, tip text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run, repository, tip));
CREATE INDEX bundle_uses_by_tip ON bundle_uses (repository, tip);
-- A role that may not carry out runs stores snapshots, not branches of work.
ALTER TABLE bundles ENABLE ROW LEVEL SECURITY;
CREATE POLICY bundles_read ON bundles FOR SELECT USING (true);
CREATE POLICY bundles_remove ON bundles FOR DELETE USING (true);
CREATE POLICY bundles_add ON bundles FOR INSERT
    WITH CHECK (branch = '' OR has_function_privilege('deputy.may_carry_out()', 'execute'));
CREATE POLICY bundles_touch ON bundles FOR UPDATE
    USING (branch = '' OR has_function_privilege('deputy.may_carry_out()', 'execute'));
ALTER TABLE bundle_uses ENABLE ROW LEVEL SECURITY;
CREATE POLICY bundle_uses_read ON bundle_uses FOR SELECT USING (true);
CREATE POLICY bundle_uses_remove ON bundle_uses FOR DELETE USING (true);
CREATE POLICY bundle_uses_add ON bundle_uses FOR INSERT WITH CHECK (
    has_function_privilege('deputy.may_carry_out()', 'execute') OR NOT EXISTS (SELECT 1 FROM deputy.bundles b
        WHERE b.repository = bundle_uses.repository AND b.tip = bundle_uses.tip AND b.branch <> ''));
CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run text NOT NULL, body bytea NOT NULL);
CREATE TABLE schema_version (version integer NOT NULL, oldest integer NOT NULL);

-- The first transaction id that may still write records: all records of earlier ones can be seen. A transaction of
-- another database, or one that does not touch our records, does not count: only ours hold a lock on `events`, taken
-- before they get an id.
CREATE FUNCTION horizon() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    seen pg_snapshot;
    first record;
BEGIN
    FOR tries IN 1..4 LOOP
        seen := pg_current_snapshot();
        IF pg_snapshot_xmin(seen) = pg_snapshot_xmax(seen) THEN
            RETURN pg_snapshot_xmax(seen)::text::bigint;
        END IF;
        first := first_active(seen);
        -- An id without a lock has just begun: look again.
        EXIT WHEN first.is_known;
    END LOOP;
    RETURN first.id;
END $$;

-- The first of the active transactions of a snapshot that may write records, or the end of the snapshot; `is_known`:
-- whether it is ours. One that has ended meanwhile does not count, because its records can be seen from now on.
CREATE FUNCTION first_active(seen pg_snapshot, OUT id bigint, OUT is_known boolean) LANGUAGE sql AS $$
    WITH locks AS MATERIALIZED (SELECT locktype, pid, transactionid, relation, database FROM pg_locks WHERE granted),
    active AS (
        SELECT x::text::bigint AS id, t.pid, EXISTS (
            SELECT 1 FROM locks r WHERE r.pid = t.pid AND r.relation = 'deputy.events'::regclass
            AND r.database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS is_ours
        FROM pg_snapshot_xip(seen) x LEFT JOIN locks t ON t.locktype = 'transactionid'
            AND t.transactionid::text::bigint = x::text::bigint % 4294967296
        WHERE t.pid IS NOT NULL OR pg_xact_status(x) = 'in progress')
    SELECT coalesce(min(active.id), pg_snapshot_xmax(seen)::text::bigint), coalesce(bool_and(pid IS NOT NULL), true)
    FROM active WHERE pid IS NULL OR is_ours
$$;

CREATE FUNCTION first_position() RETURNS bigint LANGUAGE sql AS
    'SELECT pg_current_xact_id()::text::bigint << 20';

CREATE FUNCTION put_events(
    before integer, runs text[], seqs bigint[], keys text[], ats float8[], clocks float8[], kinds text[],
    bodies bytea[], sums bytea[]) RETURNS void LANGUAGE sql AS $$
    INSERT INTO events (id, run, seq, key, at, clock, kind, body, sum)
    SELECT first_position() + before + n, e.run, e.seq, e.key, e.at, e.clock, e.kind, e.body, e.sum
    FROM unnest(runs, seqs, keys, ats, clocks, kinds, bodies, sums) WITH ORDINALITY
        AS e (run, seq, key, at, clock, kind, body, sum, n)
$$;

CREATE FUNCTION put_progress(before integer, runs text[], slots integer[], ats float8[], bodies bytea[])
    RETURNS void LANGUAGE sql AS $$
    INSERT INTO progress (id, run, slot, at, body)
    SELECT first_position() + before + n, p.run, p.slot, p.at, p.body
    FROM unnest(runs, slots, ats, bodies) WITH ORDINALITY AS p (run, slot, at, body, n)
    ON CONFLICT (run, slot) DO UPDATE SET id = excluded.id, at = excluded.at, body = excluded.body
$$;

CREATE FUNCTION put_runs(
    ats float8[], states bytea[], sums bytea[], names text[], parents text[], roots text[], lives boolean[],
    settleds boolean[]) RETURNS void LANGUAGE sql AS $$
    INSERT INTO runs (last_at, state, sum, run, parent, root, is_live, is_settled, ended_at)
    SELECT r.*, CASE WHEN r.is_live THEN NULL ELSE r.last_at END
    FROM unnest(ats, states, sums, names, parents, roots, lives, settleds)
        AS r (last_at, state, sum, run, parent, root, is_live, is_settled)
    ON CONFLICT (run) DO UPDATE SET last_at = excluded.last_at, state = excluded.state, sum = excluded.sum,
        is_live = excluded.is_live, is_settled = excluded.is_settled, ended_at = excluded.ended_at
$$;

CREATE FUNCTION put_states(ats float8[], states bytea[], sums bytea[], names text[]) RETURNS void LANGUAGE sql AS $$
    UPDATE runs SET last_at = s.last_at, state = s.state, sum = s.sum,
        ended_at = CASE WHEN runs.is_live THEN NULL ELSE s.last_at END
    FROM unnest(ats, states, sums, names) AS s (last_at, state, sum, run) WHERE runs.run = s.run
$$;

CREATE FUNCTION put_leases(names text[], holders text[], epochs bigint[]) RETURNS void LANGUAGE sql AS $$
    INSERT INTO leases (run, owner, epoch) SELECT * FROM unnest(names, holders, epochs)
$$;

CREATE FUNCTION put_released(names text[], epochs bigint[], holders text[]) RETURNS void LANGUAGE sql AS $$
    UPDATE leases SET owner = NULL FROM unnest(names, epochs, holders) AS e (run, epoch, owner)
    WHERE leases.run = e.run AND leases.epoch = e.epoch AND leases.owner = e.owner
$$;

-- Give a placement to the engine that hands runs to workers, in the transaction that decides it. Callers need no rights
-- on the tables of the engine, so they name no other queue: the engine has some of its own, without a number of slots.
CREATE FUNCTION enqueue(run text, number bigint, queue text) RETURNS void LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF queue ~ '^deputy(\.[A-Za-z0-9-]{1,40})?$' IS NOT TRUE THEN
        RAISE invalid_parameter_value USING MESSAGE = format('%L is no queue of workers', queue);
    END IF;
    PERFORM dbos.enqueue_workflow(
        workflow_name => 'deputy_run', queue_name => queue, positional_args => ARRAY[to_json(run), to_json(number)],
        workflow_id => run || '/' || number, app_version => 'deputy');
END $$;

-- New runs that wait for a worker.
CREATE FUNCTION put_placed(names text[], queues text[]) RETURNS void LANGUAGE sql
    SECURITY DEFINER SET search_path = deputy, pg_temp AS $$
    INSERT INTO leases (run, epoch, queue, placed, is_placed, placed_at)
        SELECT n.run, 0, n.queue, 1, true, clock_timestamp() FROM unnest(names, queues) AS n (run, queue);
    SELECT enqueue(n.run, 1, n.queue) FROM unnest(names, queues) AS n (run, queue);
$$;

-- Take runs from their owner or their wait, and put them on their queue.
CREATE FUNCTION place(names text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    one record;
BEGIN
    FOR one IN UPDATE leases SET owner = NULL, placed = placed + 1, is_placed = true, is_parked = false, awaits = '{}',
        placed_at = clock_timestamp() WHERE run = ANY (names) AND queue IS NOT NULL RETURNING run, placed, queue
    LOOP
        PERFORM enqueue(one.run, one.placed, one.queue);
    END LOOP;
END $$;

-- The runs whose placement the engine has lost: the worker that claimed it is silent, or the engine ended or dropped it.
CREATE FUNCTION lost_placements(stale_seconds float8) RETURNS SETOF text LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT l.run FROM deputy.leases l
        LEFT JOIN dbos.workflow_status w ON w.workflow_uuid = l.run || '/' || l.placed
        LEFT JOIN deputy.owners o ON o.owner = w.executor_id AND o.beat >= clock_timestamp() - stale_seconds * interval '1 s'
        WHERE l.is_placed AND l.placed_at < clock_timestamp() - stale_seconds * interval '1 s'
        AND (w.status IS NULL OR (w.status = 'PENDING' AND o.owner IS NULL)
            OR w.status NOT IN ('ENQUEUED', 'DELAYED', 'PENDING'));
END $$;

-- Place again what silent processes own, and what the engine has lost; returns both counts. Locked leases are left to
-- the next sweep.
CREATE FUNCTION sweep(stale_seconds float8, OUT taken integer, OUT claimed integer) LANGUAGE plpgsql AS $$
DECLARE
    left_runs text[];
    lost_runs text[];
BEGIN
    SELECT array_agg(s.run) INTO left_runs FROM (
        SELECT l.run FROM leases l LEFT JOIN owners o USING (owner)
        WHERE l.owner IS NOT NULL AND l.queue IS NOT NULL
            AND (o.beat IS NULL OR o.beat < clock_timestamp() - stale_seconds * interval '1 s')
        ORDER BY l.run FOR UPDATE OF l SKIP LOCKED) s JOIN runs r USING (run) WHERE r.is_live;
    UPDATE leases SET lost_owner = owner WHERE run = ANY (left_runs);
    PERFORM place(left_runs);
    SELECT array_agg(s.run) INTO lost_runs FROM (
        SELECT l.run FROM leases l WHERE l.run IN (SELECT lost_placements(stale_seconds)) AND l.is_placed
        ORDER BY l.run FOR UPDATE SKIP LOCKED) s JOIN runs r USING (run) WHERE r.is_live;
    PERFORM place(lost_runs);
    taken := coalesce(cardinality(left_runs), 0);
    claimed := coalesce(cardinality(lost_runs), 0);
END $$;

-- Tell the processes that own runs which of them got a message or ended (`names`), and place what was parked for that.
-- Every role may call it: a run is placed only if a message is there, or a child that it awaits has ended.
-- The leases of these runs and of their `callers` are locked: a run that parks has seen the end, or is found here.
CREATE FUNCTION announce(names text[], callers text[]) RETURNS void LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = deputy, pg_temp AS $$
DECLARE
    woken text[];
BEGIN
    PERFORM pg_notify('deputy', name) FROM unnest(names) AS name;
    SELECT array_agg(l.run) INTO woken FROM leases l WHERE is_parked
        AND (l.run = ANY (names) AND EXISTS (SELECT 1 FROM inbox i WHERE i.run = l.run AND NOT i.is_taken)
            OR l.run = ANY (callers) AND EXISTS (
                SELECT 1 FROM runs r WHERE r.run = ANY (names) AND r.run = ANY (l.awaits) AND NOT r.is_live));
    IF woken IS NOT NULL THEN
        PERFORM place(woken);
    END IF;
END $$;

-- Lock what a batch needs; whether it was committed before, as after a lost COMMIT. The lock on `events` comes before
-- the transaction has an id, that of the owner before all leases, and those come in order.
CREATE FUNCTION lock_batch(me text, number bigint, names text[]) RETURNS boolean LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = deputy, pg_temp AS $$
DECLARE
    done bigint;
    of_login name;
BEGIN
    LOCK TABLE events IN ROW EXCLUSIVE MODE;
    SELECT batch, login INTO done, of_login FROM owners WHERE owner = me FOR UPDATE;
    IF NOT FOUND THEN
        -- Waits for an earlier try of this batch that is still under way.
        INSERT INTO owners (owner, beat, batch) VALUES (me, clock_timestamp(), 0) ON CONFLICT (owner) DO NOTHING;
        SELECT batch, login INTO done, of_login FROM owners WHERE owner = me FOR UPDATE;
    END IF;
    IF of_login <> session_user THEN
        RAISE insufficient_privilege USING MESSAGE = format('process %s belongs to login %s', me, of_login);
    END IF;
    PERFORM 1 FROM leases WHERE run = ANY (names) ORDER BY run FOR UPDATE;
    RETURN coalesce(done = number, false);
END $$;

-- Lock the budgets of these trees, given in order, after the leases of the batch.
CREATE FUNCTION lock_budgets(roots text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    root text;
BEGIN
    FOREACH root IN ARRAY roots LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended('deputy budgets ' || root, 0));
    END LOOP;
END $$;

-- The heartbeat of a process goes only with a batch of its writer: a writer that is stuck loses its leases.
-- Its time is compared with the arrival of the statement, so that a wait for locks does not count.
CREATE FUNCTION beat(me text, number bigint, my_host text, my_version text, my_time float8) RETURNS void LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = deputy, pg_temp AS $$
BEGIN
    INSERT INTO owners (owner, beat, batch, host, version, clock_offset)
    VALUES (me, clock_timestamp(), number, my_host, my_version, my_time - extract(epoch FROM statement_timestamp()))
    ON CONFLICT (owner) DO UPDATE
        SET beat = excluded.beat, batch = excluded.batch, host = excluded.host, version = excluded.version,
            clock_offset = excluded.clock_offset
        WHERE owners.login = session_user;
    IF NOT FOUND THEN
        RAISE insufficient_privilege USING MESSAGE = format('process %s belongs to another login', me);
    END IF;
END $$;

-- A whole batch in one call. `status`: 1 done, 2 done before, 0 nothing was written because a lease is not held, or
-- one of `free` is held.
CREATE FUNCTION commit_batch(
    me text, number bigint, my_host text, my_version text, my_time float8, held_runs text[], held_epochs bigint[], free text[],
    e1 text[], e2 bigint[], e3 text[], e4 float8[], e5 float8[], e6 text[], e7 bytea[], e8 bytea[],
    l1 text[], l2 text[], l3 bigint[], q1 text[], q2 text[],
    r1 float8[], r2 bytea[], r3 bytea[], r4 text[], r5 text[], r6 text[], r7 boolean[], r8 boolean[],
    s1 float8[], s2 bytea[], s3 bytea[], s4 text[],
    x1 text[], x2 bigint[], x3 text[],
    p1 text[], p2 integer[], p3 float8[], p4 bytea[],
    notices text[], callers text[],
    OUT status integer, OUT accounts text[], OUT held_until float8[], OUT limited_until float8[])
    LANGUAGE plpgsql AS $$
DECLARE
    found_count bigint;
BEGIN
    IF lock_batch(me, number, held_runs || free || callers) THEN
        status := 2;
        RETURN;
    END IF;
    SELECT count(*) INTO found_count FROM leases l JOIN unnest(held_runs, held_epochs) AS h (run, epoch)
        ON l.run = h.run AND l.epoch = h.epoch WHERE l.owner = me;
    IF found_count <> cardinality(held_runs)
        OR EXISTS (SELECT 1 FROM leases WHERE run = ANY (free) AND owner IS NOT NULL) THEN
        status := 0;
        RETURN;
    END IF;
    PERFORM beat(me, number, my_host, my_version, my_time);
    IF cardinality(l1) > 0 THEN PERFORM put_leases(l1, l2, l3); END IF;
    IF cardinality(q1) > 0 THEN PERFORM put_placed(q1, q2); END IF;
    IF cardinality(e1) > 0 THEN PERFORM put_events(0, e1, e2, e3, e4, e5, e6, e7, e8); END IF;
    IF cardinality(s1) > 0 THEN PERFORM put_states(s1, s2, s3, s4); END IF;
    IF cardinality(r1) > 0 THEN PERFORM put_runs(r1, r2, r3, r4, r5, r6, r7, r8); END IF;
    IF cardinality(x1) > 0 THEN PERFORM put_released(x1, x2, x3); END IF;
    IF cardinality(p1) > 0 THEN PERFORM put_progress(0, p1, p2, p3, p4); END IF;
    IF cardinality(notices) > 0 THEN PERFORM announce(notices, callers); END IF;
    status := 1;
    IF EXISTS (SELECT 1 FROM rate_limits) THEN
        SELECT array_agg(l.account), array_agg(l.held_until), array_agg(l.limited_until)
            INTO accounts, held_until, limited_until FROM rate_limits l;
    END IF;
END $$;

REVOKE EXECUTE ON FUNCTION may_answer, may_carry_out, lock_batch, beat, announce, enqueue, put_placed, lost_placements
    FROM PUBLIC;
