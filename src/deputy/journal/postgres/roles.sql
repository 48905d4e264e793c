-- The roles of a Deputy store and their rights, for psql as an administrator, after `deputy store migrate`:
--     deputy store roles | psql postgres://ADMIN@HOST/NAME
-- Then let a login have one or more of them: GRANT deputy_worker, deputy_answerer TO alice;

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['deputy_reader', 'deputy_answerer', 'deputy_submitter', 'deputy_worker'] LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', name);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL; -- It is there, or was made at the same moment for another database of this server.
        END;
    END LOOP;
END $$;

-- Reader: ps, show, watch, export, the page without actions.
GRANT USAGE ON SCHEMA deputy TO deputy_reader, deputy_answerer, deputy_submitter, deputy_worker;
GRANT SELECT ON ALL TABLES IN SCHEMA deputy TO deputy_reader, deputy_answerer, deputy_submitter, deputy_worker;

-- Answerer: also approve, answer and cancel the runs of others. It cannot start or take over a run.
GRANT INSERT ON deputy.inbox TO deputy_answerer;
GRANT EXECUTE ON FUNCTION deputy.may_answer, deputy.lock_batch, deputy.beat, deputy.announce
    TO deputy_answerer;

-- Submitter: also place new runs for workers, and cancel them. It cannot carry out or take over a run, approve or answer:
-- the rules of the tables let it write nothing but the first record of a run, its snapshot, and that it got a result.
GRANT INSERT ON deputy.inbox, deputy.events, deputy.runs, deputy.blobs, deputy.bundles, deputy.bundle_uses
    TO deputy_submitter;
GRANT UPDATE ON deputy.runs TO deputy_submitter;
GRANT UPDATE (at) ON deputy.blobs, deputy.bundles TO deputy_submitter;
GRANT EXECUTE ON FUNCTION deputy.lock_batch, deputy.beat, deputy.announce, deputy.put_placed TO deputy_submitter;

-- Worker: also start runs, carry them out, take them over and remove them. It cannot approve or answer.
GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA deputy TO deputy_worker;
REVOKE UPDATE ON deputy.inbox FROM deputy_worker;
GRANT UPDATE (is_taken) ON deputy.inbox TO deputy_worker;
REVOKE INSERT, UPDATE, DELETE ON deputy.schema_version FROM deputy_worker;
GRANT EXECUTE ON FUNCTION deputy.may_carry_out, deputy.lock_batch, deputy.beat, deputy.announce, deputy.put_placed,
    deputy.enqueue, deputy.lost_placements TO deputy_worker;
DO $$
BEGIN
    -- The queues of `deputy worker`, where there are some.
    IF EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = 'dbos') THEN
        GRANT USAGE ON SCHEMA dbos TO deputy_worker;
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA dbos TO deputy_worker;
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA dbos TO deputy_worker;
    END IF;
END $$;
