
-- typeorm-unique-text numbers: generated, do not edit.
-- It gives a row the number after the highest "number" of its scope.
-- docs/numbers.md of the package says what it does, and why no two rows get one number.
-- {"protocol":1, "kind":"numbers", "name":"number",
-- "columns":{"number":"number","scope 0":"tenant","scope 1":"post"},
-- "scope":[{"name":"tenant","textual":true},{"name":"post","textual":false}], "number":"number",
-- "triggers":["f40034a7","53958d7d"]}
#variable_conflict use_variable
DECLARE
  plain boolean := TG_TABLE_NAME OPERATOR(pg_catalog.=) 'comment'
    AND pg_catalog.pg_table_is_visible(TG_RELID);
  home pg_catalog.oid := TG_RELID;
  stays boolean := TG_OP = 'UPDATE'
    AND ROW(OLD."tenant"::pg_catalog.text, OLD."post")
      IS NOT DISTINCT FROM ROW(NEW."tenant"::pg_catalog.text, NEW."post");
  begun boolean := false;
  oldest bigint;
  newest bigint;
  scopes integer;
BEGIN
  IF plain IS NOT TRUE THEN
    -- Not the table that these queries name: it must be a partition, or was renamed or moved.
    IF NOT EXISTS (
      SELECT FROM pg_catalog.pg_partition_ancestors(TG_RELID) AS p
      WHERE p.relid::pg_catalog.oid = pg_catalog.to_regclass('"comment"')::pg_catalog.oid
    ) THEN
      RAISE EXCEPTION USING ERRCODE = '55000',
        MESSAGE = 'the guard names another table or column than its own',
        HINT = 'Something was renamed: create the guard again, for instance by a new migration.',
        CONSTRAINT = 'comment_number', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
    END IF;
  END IF;
  IF NOT plain THEN
    -- Partitions share their locks.
    home := pg_catalog.to_regclass('"comment"');
  END IF;
  IF stays AND NEW."number" IS NOT NULL THEN
    RETURN NEW;
  ELSIF TG_OP = 'UPDATE' AND NEW."number" IS NOT DISTINCT FROM OLD."number" THEN
    -- Who moves a row and gives it no other number means the next one there.
    NEW."number" := NULL;
  END IF;
  LOOP
    -- Nobody else adds a row to the scope before this transaction ends. A delete of this row is waited for.
    SELECT t."number" INTO oldest FROM "comment" AS t
    WHERE t."tenant" OPERATOR(pg_catalog.=) NEW."tenant"
      AND t."post" OPERATOR(pg_catalog.=) NEW."post"
      AND (t.tableoid = TG_RELID OR NOT plain)
    ORDER BY t."tenant", t."post", t."number" LIMIT 1
    FOR NO KEY UPDATE;
    IF FOUND THEN
      SELECT t."number" INTO newest FROM "comment" AS t
      WHERE t."tenant" OPERATOR(pg_catalog.=) NEW."tenant"
        AND t."post" OPERATOR(pg_catalog.=) NEW."post"
        AND (t.tableoid = TG_RELID OR NOT plain)
      ORDER BY t."tenant" DESC, t."post" DESC, t."number" DESC LIMIT 1;
      -- Whoever was waited for may have given the row another number, and others hold the oldest by now.
      EXIT WHEN NOT EXISTS (
        SELECT FROM "comment" AS t
        WHERE t."tenant" OPERATOR(pg_catalog.=) NEW."tenant"
          AND t."post" OPERATOR(pg_catalog.=) NEW."post"
          AND (t.tableoid = TG_RELID OR NOT plain)
          AND t."number" OPERATOR(pg_catalog.<) oldest
      );
      CONTINUE;
    END IF;
    -- The scope is empty, and nobody else begins it meanwhile.
    EXIT WHEN begun;
    PERFORM pg_catalog.pg_advisory_xact_lock_shared(home::pg_catalog.int4, 310931357);
    scopes := 1
      + coalesce(nullif(pg_catalog.current_setting('unique_text.scopes_begun', true), ''), '0')::pg_catalog.int4;
    PERFORM pg_catalog.set_config('unique_text.scopes_begun', scopes::pg_catalog.text, true);
    -- The server's table of locks is small: whoever begins very many scopes tries to keep everybody out of new ones.
    IF scopes <= 1000 OR NOT pg_catalog.pg_try_advisory_xact_lock(home::pg_catalog.int4, 310931357) THEN
      PERFORM pg_catalog.pg_advisory_xact_lock(
        home::pg_catalog.int4,
        pg_catalog.hash_record(ROW(310931357, pg_catalog.hashtext(NEW."tenant"::pg_catalog.text), NEW."post"))
      );
    END IF;
    begun := true;
  END LOOP;
  NEW."number" := coalesce(NEW."number", greatest(newest, 0) + 1, 1);
  RETURN NEW;
END

CREATE TRIGGER "numbers_comment.number_place_insert"
  BEFORE INSERT ON "comment" FOR EACH ROW
  WHEN (NEW."number" IS NULL)
  EXECUTE FUNCTION "numbers_comment.number_place"()

CREATE TRIGGER "numbers_comment.number_place_update"
  BEFORE UPDATE OF "tenant", "post", "number" ON "comment" FOR EACH ROW
  WHEN ((OLD."tenant" OPERATOR(pg_catalog.=) NEW."tenant") IS NOT TRUE
    OR (OLD."post" OPERATOR(pg_catalog.=) NEW."post") IS NOT TRUE
    OR NEW."number" IS NULL)
  EXECUTE FUNCTION "numbers_comment.number_place"()
