
#variable_conflict use_variable
DECLARE
  plain boolean := TG_TABLE_NAME OPERATOR(pg_catalog.=) 'page'
    AND pg_catalog.pg_table_is_visible(TG_RELID);
  locked boolean := false;
  first integer;
  last integer;
  taken integer;
  length bigint;
BEGIN
  IF plain IS NOT TRUE THEN
    -- Not the table that these queries name: it must be a partition, or was renamed or moved.
    IF NOT EXISTS (
      SELECT FROM pg_catalog.pg_partition_ancestors(TG_RELID) AS p
      WHERE p.relid::pg_catalog.oid = pg_catalog.to_regclass('"page"')::pg_catalog.oid
    ) THEN
      RAISE EXCEPTION USING ERRCODE = '55000',
        MESSAGE = 'the guard names another table or column than its own',
        HINT = 'Something was renamed: create the guard again, for instance by a new migration.',
        CONSTRAINT = 'page url', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
    END IF;
  END IF;
  IF TG_OP = 'UPDATE'
    AND OLD."tenant" OPERATOR(pg_catalog.=) NEW."tenant"
    AND OLD."url"::pg_catalog.text COLLATE "C" IS NOT DISTINCT FROM NEW."url"::pg_catalog.text COLLATE "C"
    AND (OLD."deletedAt" IS NULL OR NEW."deletedAt" IS NOT NULL)
  THEN
    -- Number 0 is what a promotion writes, and for the index to decide; nobody clears the flag.
    NEW."urlHash" := OLD."urlHash";
    NEW."urlHashNumber" := CASE WHEN NEW."urlHashNumber" = 0 THEN 0 ELSE OLD."urlHashNumber" END;
    NEW."urlHashChained" := OLD."urlHashChained" OR NEW."urlHashChained" IS TRUE;
    RETURN NEW;
  END IF;
  IF TG_OP = 'UPDATE'
    AND NOT (OLD."url" IS NULL)
    AND (OLD."url"::pg_catalog.text COLLATE "C" IS DISTINCT FROM NEW."url"::pg_catalog.text COLLATE "C"
      OR NOT OLD."tenant" OPERATOR(pg_catalog.=) NEW."tenant")
  THEN
    RAISE EXCEPTION USING ERRCODE = 'UT001',
      MESSAGE = 'the text is immutable',
      CONSTRAINT = 'page url', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;
  IF NEW."url" IS NULL THEN
    NEW."urlHash" := NULL;
    NEW."urlHashNumber" := 0;
    NEW."urlHashChained" := false;
    RETURN NEW;
  END IF;
  NEW."urlHash" := pg_catalog.md5(NEW."url"::pg_catalog.text)::pg_catalog.uuid;
  NEW."urlHashChained" := false;
  -- Deleted softly, it is in no chain. Once it is restored, it gets a number that is free then.
  IF NEW."deletedAt" IS NOT NULL THEN
    NEW."urlHashNumber" := 0;
    RETURN NEW;
  END IF;
  -- Practically every chain is empty. Should it not stay so, the index refuses number 0.
  PERFORM FROM "page" AS t
  WHERE t."tenant" OPERATOR(pg_catalog.=) NEW."tenant"
    AND t."urlHash" OPERATOR(pg_catalog.=) NEW."urlHash"
    AND t."deletedAt" IS NULL
  LIMIT 1;
  IF NOT FOUND THEN
    NEW."urlHashNumber" := 0;
    RETURN NEW;
  END IF;
  FOR round IN 1..16 LOOP
    -- Once without the lock and, unless that is enough, once more under it: a new query has a new snapshot, which
    -- shows all that earlier holders of the lock have committed, and nobody can add more.
    SELECT pg_catalog.min(t."urlHashNumber"), pg_catalog.max(t."urlHashNumber"), pg_catalog.count(*),
      pg_catalog.min(t."urlHashNumber") FILTER (
        WHERE t."url"::pg_catalog.text COLLATE "C" IS NOT DISTINCT FROM NEW."url"::pg_catalog.text COLLATE "C"
      )
    INTO first, last, length, taken
    FROM "page" AS t
    WHERE t."tenant" OPERATOR(pg_catalog.=) NEW."tenant"
      AND t."urlHash" OPERATOR(pg_catalog.=) NEW."urlHash"
      AND t."deletedAt" IS NULL
      AND (t.tableoid = TG_RELID OR NOT plain);
    IF locked AND taken IS NULL AND length >= TG_ARGV[0]::pg_catalog.int4 THEN
      RAISE EXCEPTION USING ERRCODE = 'UT002',
        MESSAGE = pg_catalog.format('the chain is full: %s texts share one hash', TG_ARGV[0]),
        CONSTRAINT = 'page url', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
    ELSIF locked THEN
      NEW."urlHashNumber" := coalesce(taken, last + 1);
      RETURN NEW;
    ELSIF last IS NULL OR taken = 0 OR first <> 0 THEN
      -- Empty, or taken at 0: the index decides, and knows no snapshots. Others but no anchor: this very statement
      -- took it, to wait for another would fail for ever; settle compares and flags what comes to 0.
      NEW."urlHashNumber" := coalesce(taken, 0);
      NEW."urlHashChained" := (first <> 0 AND taken IS NULL) IS TRUE;
      RETURN NEW;
    END IF;
    -- The anchor is the mutex of the chain; at REPEATABLE READ this fails where it has changed since the snapshot.
    PERFORM 1 FROM "page" AS t
    WHERE t."tenant" OPERATOR(pg_catalog.=) NEW."tenant"
      AND t."urlHash" OPERATOR(pg_catalog.=) NEW."urlHash"
      AND t."deletedAt" IS NULL
      AND (t.tableoid = TG_RELID OR NOT plain)
      AND t."urlHashNumber" = 0
    FOR NO KEY UPDATE;
    locked := FOUND;
  END LOOP;
  RAISE EXCEPTION USING ERRCODE = '40001',
    MESSAGE = 'could not lock the anchor of a chain due to concurrent deletes',
    CONSTRAINT = 'page url', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
END

#variable_conflict use_variable
DECLARE
  plain boolean := TG_TABLE_NAME OPERATOR(pg_catalog.=) 'page'
    AND pg_catalog.pg_table_is_visible(TG_RELID);
  lowest integer;
  r record;
BEGIN
  IF plain IS NOT TRUE THEN
    -- Not the table that these queries name: it must be a partition, or was renamed or moved.
    IF NOT EXISTS (
      SELECT FROM pg_catalog.pg_partition_ancestors(TG_RELID) AS p
      WHERE p.relid::pg_catalog.oid = pg_catalog.to_regclass('"page"')::pg_catalog.oid
    ) THEN
      RAISE EXCEPTION USING ERRCODE = '55000',
        MESSAGE = 'the guard names another table or column than its own',
        HINT = 'Something was renamed: create the guard again, for instance by a new migration.',
        CONSTRAINT = 'page url', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
    END IF;
  END IF;
  -- A trigger follows a column that is renamed, the text of a function does not.
  IF NOT EXISTS (
    SELECT FROM pg_catalog.pg_trigger AS g
    WHERE g.tgrelid = TG_RELID
      AND g.tgname = 'unique_text_page_url_place_update'
      AND ARRAY(
        SELECT a.attname FROM pg_catalog.unnest(g.tgattr) WITH ORDINALITY AS k (attnum, i)
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid = g.tgrelid AND a.attnum = k.attnum
        ORDER BY k.i
      ) OPERATOR(pg_catalog.=) ARRAY[
        'url', 'tenant', 'urlHash', 'urlHashNumber', 'urlHashChained', 'deletedAt'
      ]::pg_catalog.name[]
  ) THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
      MESSAGE = 'the guard names another table or column than its own',
      HINT = 'Something was renamed: create the guard again, for instance by a new migration.',
      CONSTRAINT = 'page url', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;
  FOR way IN 1..2 LOOP
    IF way = 1 THEN
      -- A promotion: the row was the anchor of a chain, and is not any more.
      CONTINUE WHEN (OLD."urlHashNumber" = 0
        AND OLD."urlHashChained"
        AND OLD."deletedAt" IS NULL
        AND (TG_OP = 'DELETE'
          OR OLD."tenant" IS DISTINCT FROM NEW."tenant"
          OR OLD."urlHash" IS DISTINCT FROM NEW."urlHash"
          OR NEW."deletedAt" IS NOT NULL)) IS NOT TRUE;
      r := OLD;
    ELSE
      -- A touch: the row has come to a number that is not 0, or what its chain stands on has changed. OLD may be NULL.
      CONTINUE WHEN (NEW."deletedAt" IS NULL
        AND (NEW."urlHashNumber" > 0 AND OLD."urlHashNumber" IS DISTINCT FROM NEW."urlHashNumber"
        OR (NEW."urlHashNumber" > 0 OR NEW."urlHashChained")
          AND (OLD."url"::pg_catalog.text COLLATE "C" IS DISTINCT FROM NEW."url"::pg_catalog.text COLLATE "C"
            OR OLD."tenant" IS DISTINCT FROM NEW."tenant"
            OR OLD."urlHash" IS DISTINCT FROM NEW."urlHash"
            OR OLD."deletedAt" IS NOT NULL)
        OR OLD."urlHashChained" AND NOT NEW."urlHashChained"
          AND OLD."tenant" OPERATOR(pg_catalog.=) NEW."tenant"
          AND OLD."urlHash" OPERATOR(pg_catalog.=) NEW."urlHash"
          AND OLD."deletedAt" IS NULL)) IS NOT TRUE;
      r := NEW;
    END IF;
    SELECT t."urlHashNumber" INTO lowest FROM "page" AS t
    WHERE t."tenant" OPERATOR(pg_catalog.=) r."tenant"
      AND t."urlHash" OPERATOR(pg_catalog.=) r."urlHash"
      AND t."deletedAt" IS NULL
      AND (t.tableoid = TG_RELID OR NOT plain)
    ORDER BY t."urlHashNumber" LIMIT 1
    FOR NO KEY UPDATE;
    IF lowest IS NULL THEN
      CONTINUE;
    ELSIF lowest = 0 THEN
      -- Also where it is true: on the new version fail, with 40001, transactions with an older snapshot, in place of
      -- acting on that. A lock would leave no trace.
      UPDATE "page" AS t SET "urlHashChained" = true
      WHERE t."tenant" OPERATOR(pg_catalog.=) r."tenant"
        AND t."urlHash" OPERATOR(pg_catalog.=) r."urlHash"
        AND t."deletedAt" IS NULL
        AND (t.tableoid = TG_RELID OR NOT plain)
        AND t."urlHashNumber" = 0;
    ELSE
      UPDATE "page" AS t SET "urlHashNumber" = 0, "urlHashChained" = true
      WHERE t."tenant" OPERATOR(pg_catalog.=) r."tenant"
        AND t."urlHash" OPERATOR(pg_catalog.=) r."urlHash"
        AND t."deletedAt" IS NULL
        AND (t.tableoid = TG_RELID OR NOT plain)
        AND t."urlHashNumber" = lowest;
    END IF;
    -- The row was locked and there: only a trigger of the table can have undone this.
    IF NOT FOUND OR NOT EXISTS (
      SELECT FROM "page" AS t
      WHERE t."tenant" OPERATOR(pg_catalog.=) r."tenant"
        AND t."urlHash" OPERATOR(pg_catalog.=) r."urlHash"
        AND t."deletedAt" IS NULL
        AND (t.tableoid = TG_RELID OR NOT plain)
        AND t."urlHashNumber" = 0
        AND t."urlHashChained"
    ) THEN
      RAISE EXCEPTION USING ERRCODE = '55000',
        MESSAGE = 'a trigger of the table undoes what the guard does to a chain',
        HINT = 'The trigger must keep hash, hash number and flag as they are, and let their UPDATE pass.',
        CONSTRAINT = 'page url', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
    END IF;
    -- This statement may have put a text at 0 past every proof; a trigger may have changed a text after the proof.
    -- Compared by number: an old snapshot can show two rows at one number, of which one is gone.
    IF EXISTS (
      SELECT FROM "page" AS s JOIN "page" AS t
        ON t."tenant" OPERATOR(pg_catalog.=) s."tenant"
        AND t."urlHash" OPERATOR(pg_catalog.=) s."urlHash"
        AND t."deletedAt" IS NULL
        AND (t.tableoid = TG_RELID OR NOT plain)
        AND t."url"::pg_catalog.text COLLATE "C" IS NOT DISTINCT FROM s."url"::pg_catalog.text COLLATE "C"
        AND t."urlHashNumber" <> s."urlHashNumber"
      WHERE s."tenant" OPERATOR(pg_catalog.=) r."tenant"
        AND s."urlHash" OPERATOR(pg_catalog.=) r."urlHash"
        AND s."deletedAt" IS NULL
        AND (s.tableoid = TG_RELID OR NOT plain)
        AND s."urlHashNumber" IN (0, r."urlHashNumber")
    ) THEN
      RAISE EXCEPTION USING ERRCODE = '23505',
        MESSAGE = 'duplicate key value violates unique constraint "page url"',
        CONSTRAINT = 'page url', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
    END IF;
  END LOOP;
  RETURN NULL;
END

CREATE TRIGGER "unique_text_page_url_place_insert"
  BEFORE INSERT ON "page" FOR EACH ROW
  -- With hash and number 0 from the client nothing runs: check and index decide.
  WHEN (NEW."urlHash" IS NULL OR NEW."urlHashNumber" IS DISTINCT FROM 0)
  EXECUTE FUNCTION "place"('1000')

CREATE TRIGGER "unique_text_page_url_place_update"
  BEFORE UPDATE OF "url", "tenant", "urlHash", "urlHashNumber", "urlHashChained", "deletedAt"
  ON "page" FOR EACH ROW
  -- Naming columns keeps other UPDATEs from preparing this condition. The check reads the text at each of them.
  WHEN (OLD."url"::pg_catalog.text COLLATE "C" IS DISTINCT FROM NEW."url"::pg_catalog.text COLLATE "C"
    OR OLD."tenant" IS DISTINCT FROM NEW."tenant"
    OR OLD."urlHash" IS DISTINCT FROM NEW."urlHash"
    OR OLD."urlHashNumber" IS DISTINCT FROM NEW."urlHashNumber"
    OR OLD."urlHashChained" AND NEW."urlHashChained" IS NOT TRUE
    OR OLD."deletedAt" IS NOT NULL AND NEW."deletedAt" IS NULL)
  EXECUTE FUNCTION "place"('1000')

CREATE TRIGGER "unique_text_page_url_settle_insert"
  AFTER INSERT ON "page" FOR EACH ROW
  -- AFTER: in a BEFORE trigger an UPDATE over several rows of a chain would meet rows that its own trigger
  -- has changed, and fail with 27000 for ever.
  WHEN (NEW."urlHashNumber" > 0)
  EXECUTE FUNCTION "settle"()

CREATE TRIGGER "unique_text_page_url_settle_update"
  AFTER UPDATE ON "page" FOR EACH ROW
  -- No columns are named: a user's own BEFORE trigger may change those that the statement does not name.
  WHEN (OLD."urlHashChained" OR NEW."urlHashChained" OR NEW."urlHashNumber" > 0)
  EXECUTE FUNCTION "settle"()

CREATE TRIGGER "unique_text_page_url_settle_delete"
  AFTER DELETE ON "page" FOR EACH ROW
  -- Only an anchor that has, or had, others: every other DELETE is free of the function.
  WHEN (OLD."urlHashChained")
  EXECUTE FUNCTION "settle"()
