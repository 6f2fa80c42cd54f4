"""The tables and functions of a journal in PostgreSQL, as migrations.

Used by postgres. Names start with `kitbag_`; everything is in the first schema of the connection's search path.
"""

from typing import Final, LiteralString

MIN_SERVER_VERSION: Final = 140_000
CHANNEL: Final = "kitbag"
"""A notification is sent here for each commit; its payload is the schema."""
MIGRATIONS: Final[tuple[tuple[LiteralString, ...], ...]] = (
    (
        "CREATE TABLE kitbag_facts (name text PRIMARY KEY, value text NOT NULL)",
        "INSERT INTO kitbag_facts VALUES ('store', gen_random_uuid()::text)",
        # The one row that orders all commits: an append holds its lock until the commit.
        "CREATE TABLE kitbag_counter (last bigint NOT NULL, prunings bigint NOT NULL)",
        "INSERT INTO kitbag_counter VALUES (0, 0)",
        "CREATE TABLE kitbag_records (seq bigint PRIMARY KEY, stream text NOT NULL, at text NOT NULL,"
        " kind text NOT NULL, body text NOT NULL, key text, checksum bigint NOT NULL)",
        "CREATE INDEX kitbag_records_stream ON kitbag_records (stream, seq)",
        "CREATE UNIQUE INDEX kitbag_records_key ON kitbag_records (key) WHERE key IS NOT NULL",
        "CREATE TABLE kitbag_pruned (number bigint NOT NULL, first bigint NOT NULL, last bigint NOT NULL)",
        "CREATE INDEX kitbag_pruned_number ON kitbag_pruned (number)",
        "CREATE TABLE kitbag_writers (id text PRIMARY KEY, commit_number bigint NOT NULL, seqs bigint[] NOT NULL,"
        " at timestamptz NOT NULL DEFAULT now())",
        """
        CREATE FUNCTION kitbag_protect() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          IF TG_OP = 'DELETE' AND current_setting('kitbag.pruning', true) = 'on' THEN
            RETURN old;
          END IF;
          RAISE EXCEPTION 'records never change, and only pruning deletes them';
        END $$
        """,
        "CREATE TRIGGER kitbag_records_stay BEFORE UPDATE OR DELETE ON kitbag_records"
        " FOR EACH ROW EXECUTE FUNCTION kitbag_protect()",
    ),
    # The first format had several variants before it was released, with some of these and other functions.
    (
        "ALTER TABLE kitbag_records ADD COLUMN IF NOT EXISTS brief text",
        "ALTER TABLE kitbag_writers ADD COLUMN IF NOT EXISTS process text",
        "CREATE INDEX IF NOT EXISTS kitbag_writers_at ON kitbag_writers (at)",
        # How long a process that shows no sign of life still counts as alive, by the server's clock.
        "INSERT INTO kitbag_facts VALUES ('lease_seconds', '30') ON CONFLICT DO NOTHING",
        """
        DO $$
        DECLARE
          earlier regprocedure;
        BEGIN
          FOR earlier IN SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
            AND proname IN ('kitbag_append', 'kitbag_prune', 'kitbag_take')
          LOOP
            EXECUTE 'DROP FUNCTION ' || earlier;
          END LOOP;
        END $$
        """,
        # One statement, so no lock is held while the server waits for a client. `starts` marks the first row of each
        # batch, whose key and fences (keys that must not exist, one per line) decide about the whole batch. Per row the
        # result is its number, 0: the key exists, or -1: fenced. Sent again, it returns the first result. A connection
        # plans its queries once, perhaps while the table is small: they must not scan it when it has grown.
        """
        CREATE FUNCTION kitbag_append(
          writer text, owner text, number bigint, starts boolean[], streams text[], times text[], kinds text[],
          bodies text[], keys text[], checksums bigint[], fences text[], briefs text[]
        ) RETURNS bigint[] LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
        DECLARE
          latest bigint;
          written bigint[];
          outcome bigint := 1;
        BEGIN
          SELECT last INTO STRICT latest FROM kitbag_counter FOR UPDATE;
          SELECT seqs INTO written FROM kitbag_writers WHERE id = writer AND commit_number = number;
          IF FOUND THEN
            RETURN written;
          END IF;
          written := '{}';
          FOR i IN 1 .. cardinality(streams) LOOP
            IF starts[i] THEN
              outcome := 1;
              IF keys[i] IS NOT NULL AND EXISTS (SELECT FROM kitbag_records WHERE key = keys[i]) THEN
                outcome := 0;
              ELSIF fences[i] IS NOT NULL AND EXISTS (
                SELECT FROM kitbag_records WHERE key = ANY (string_to_array(fences[i], E'\\n'))
              ) THEN
                outcome := -1;
              END IF;
            END IF;
            IF outcome = 1 THEN
              latest := latest + 1;
              INSERT INTO kitbag_records
                VALUES (latest, streams[i], times[i], kinds[i], bodies[i], keys[i], checksums[i], briefs[i]);
              written[i] := latest;
            ELSE
              written[i] := outcome;
            END IF;
          END LOOP;
          UPDATE kitbag_counter SET last = latest;
          INSERT INTO kitbag_writers VALUES (writer, number, written, clock_timestamp(), owner)
            ON CONFLICT (id) DO UPDATE
            SET commit_number = number, seqs = written, at = clock_timestamp(), process = owner;
          IF current_setting('synchronous_commit') = 'off' THEN  -- a record is durable when its write returns
            PERFORM set_config('synchronous_commit', 'on', true);
          END IF;
          PERFORM pg_notify('kitbag', current_schema());
          RETURN written;
        END $$
        """,
        # Deletes records and appends what is left of them, as one statement too. False, and nothing is done, if one of
        # them is gone or the whole streams have others by now: another machine pruned them or continues them.
        """
        CREATE FUNCTION kitbag_prune(
          writer text, owner text, number bigint, starts boolean[], streams text[], times text[], kinds text[],
          bodies text[], keys text[], checksums bigint[], fences text[], briefs text[],
          deleted bigint[], whole_streams text[], firsts bigint[], lasts bigint[]
        ) RETURNS boolean LANGUAGE plpgsql AS $$
        DECLARE
          pruning bigint;
        BEGIN
          PERFORM FROM kitbag_counter FOR UPDATE;
          IF EXISTS (SELECT FROM kitbag_writers WHERE id = writer AND commit_number = number) THEN
            RETURN true;
          END IF;
          IF cardinality(deleted) <> (SELECT count(*) FROM kitbag_records WHERE seq = ANY (deleted)) OR EXISTS (
            SELECT seq FROM kitbag_records WHERE stream = ANY (whole_streams) EXCEPT SELECT unnest(deleted)
          ) THEN
            RETURN false;
          END IF;
          PERFORM kitbag_append(
            writer, owner, number, starts, streams, times, kinds, bodies, keys, checksums, fences, briefs
          );
          UPDATE kitbag_counter SET prunings = prunings + 1 RETURNING prunings INTO pruning;
          PERFORM set_config('kitbag.pruning', 'on', true);
          DELETE FROM kitbag_records WHERE seq = ANY (deleted);
          PERFORM set_config('kitbag.pruning', 'off', true);
          INSERT INTO kitbag_pruned SELECT pruning, * FROM unnest(firsts, lasts);
          RETURN true;
        END $$
        """,
        # As Bucket.take in store/token_bucket, by the server's clock. Unlogged: after a crash, buckets are full.
        "CREATE UNLOGGED TABLE IF NOT EXISTS kitbag_buckets (name text PRIMARY KEY, requests double precision NOT NULL,"
        " tokens double precision NOT NULL, at timestamptz NOT NULL)",
        """
        CREATE FUNCTION kitbag_take(
          bucket text, max_requests double precision, max_tokens double precision,
          requests_taken double precision, tokens_taken double precision
        ) RETURNS double precision LANGUAGE plpgsql AS $$
        DECLARE
          minutes double precision;
          left_requests double precision;
          left_tokens double precision;
        BEGIN
          INSERT INTO kitbag_buckets VALUES (bucket, max_requests, max_tokens, clock_timestamp())
            ON CONFLICT DO NOTHING;
          SELECT greatest(extract(epoch FROM clock_timestamp() - at) / 60, 0) INTO minutes
            FROM kitbag_buckets WHERE name = bucket FOR UPDATE;
          UPDATE kitbag_buckets SET
            requests = least(requests + minutes * max_requests, max_requests) - requests_taken,
            tokens = least(tokens + minutes * max_tokens, max_tokens) - tokens_taken,
            at = greatest(at, clock_timestamp())
            WHERE name = bucket RETURNING requests, tokens INTO left_requests, left_tokens;
          RETURN greatest(
            CASE WHEN max_requests > 0 THEN -left_requests * 60 / max_requests ELSE 0 END,
            CASE WHEN max_tokens > 0 THEN -left_tokens * 60 / max_tokens ELSE 0 END,
            0
          );
        END $$
        """,
    ),
)
"""Each migrates a database to the next format; its format is the number of migrations applied. Released ones are never
changed, and later ones only add: an earlier Kitbag may be connected."""
FORMAT: Final = len(MIGRATIONS)
