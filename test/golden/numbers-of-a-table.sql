
-- typeorm-unique-text numbers: generated, do not edit; see docs/numbers.md of the repository.
-- It gives a row the number after the highest of its scope.
-- {"protocol":1, "kind":"numbers", "name":"number", "columns":{"number":"number"}, "scope":[],
-- "number":"number", "type":"integer", "count":false, "prefix":"numbers_comment__number",
-- "triggers":["b20d41df","443f6760","5c90ac1a"]}
#variable_conflict use_variable
DECLARE
  plain boolean := TG_TABLE_NAME OPERATOR(pg_catalog.=) 'comment'
    AND pg_catalog.pg_table_is_visible(TG_RELID);
  ours boolean;
  newest bigint;
BEGIN
  -- Once for a statement that names the columns, unless it may have named the whole of a partition.
  IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' OR TG_LEVEL OPERATOR(pg_catalog.=) 'STATEMENT'
    OR pg_catalog.pg_partition_root(TG_RELID) IS NOT NULL
  THEN
    IF EXISTS (
      SELECT FROM pg_catalog.pg_trigger AS g
      WHERE g.tgrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('"comment"')::pg_catalog.oid
        AND g.tgname OPERATOR(pg_catalog.=) 'numbers_comment__number_look'
        AND pg_catalog.strpos(pg_catalog.pg_get_triggerdef(g.oid), pg_catalog.concat(' OF ', pg_catalog.concat_ws(', ',
          pg_catalog.quote_ident('number')
        ), ' ON ')) OPERATOR(pg_catalog.=) 0
    ) THEN
      RAISE EXCEPTION USING ERRCODE = '55000',
        MESSAGE = 'what numbers the rows names another table or column than its own',
        HINT = 'Something was renamed, dropped or given away: disable the triggers, and generate a migration.',
        CONSTRAINT = 'comment_number', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
    END IF;
  END IF;
  IF TG_LEVEL OPERATOR(pg_catalog.=) 'STATEMENT' THEN
    RETURN NULL;
  END IF;
  SELECT k.relkind OPERATOR(pg_catalog.=) 'r'
    AND pg_catalog.pg_get_userbyid(k.relowner) OPERATOR(pg_catalog.=) current_user INTO ours
  FROM pg_catalog.pg_class AS k
  WHERE k.oid OPERATOR(pg_catalog.=) 'numbers_comment__number_scopes'::pg_catalog.regclass;
  IF ours IS NULL THEN
    RAISE serialization_failure USING MESSAGE = 'numbers are newer than the snapshot';
  ELSIF ours AND plain THEN
  ELSIF NOT ours OR NOT EXISTS (
    SELECT FROM pg_catalog.pg_partition_ancestors(TG_RELID) AS p
    WHERE p.relid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('"comment"')::pg_catalog.oid
  ) THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
      MESSAGE = 'what numbers the rows names another table or column than its own',
      HINT = 'Something was renamed, dropped or given away: disable the triggers, and generate a migration.',
      CONSTRAINT = 'comment_number', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;
  IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' AND NEW."number" OPERATOR(pg_catalog.=) OLD."number" THEN
    -- Who moves a row and gives it no other number means the next one there.
    NEW."number" := NULL;
  END IF;
  -- Nobody else adds a row to the scope before this transaction ends.
  LOOP
    PERFORM FROM numbers_comment__number_scopes AS k
    WHERE k.part OPERATOR(pg_catalog.=) 0
    FOR NO KEY UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO numbers_comment__number_scopes (part, n)
    VALUES (0, 0) ON CONFLICT DO NOTHING;
    EXIT WHEN FOUND;
  END LOOP;
  SELECT t."number" INTO newest FROM "comment" AS t
  WHERE (t.tableoid OPERATOR(pg_catalog.=) TG_RELID OR NOT plain)
  ORDER BY t."number" DESC LIMIT 1;
  IF NEW."number" IS NULL AND newest OPERATOR(pg_catalog.>=) 2147483647 THEN
    RAISE EXCEPTION USING ERRCODE = '22003',
      MESSAGE = 'a row of the scope has the highest number that its type can hold',
      HINT = 'Give that row a lower number or delete it, or make the column a bigint.',
      CONSTRAINT = 'comment_number', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;
  NEW."number" := coalesce(NEW."number", greatest(newest, 0) OPERATOR(pg_catalog.+) 1, 1);
  RETURN NEW;
END


CREATE TRIGGER "numbers_comment__number_look" BEFORE INSERT OR UPDATE OF "number" ON "comment" FOR EACH STATEMENT
  EXECUTE FUNCTION "numbers_comment__number_place"()

CREATE TRIGGER "numbers_comment__number_place_insert" BEFORE INSERT ON "comment" FOR EACH ROW
  WHEN (NEW."number" IS NULL) EXECUTE FUNCTION "numbers_comment__number_place"()

CREATE TRIGGER "numbers_comment__number_place_update" BEFORE UPDATE ON "comment" FOR EACH ROW
  WHEN (NEW."number" IS NULL) EXECUTE FUNCTION "numbers_comment__number_place"()
