DROP FUNCTION IF EXISTS "unique_name_names_refuse"();
CREATE FUNCTION "unique_name_names_refuse"() RETURNS trigger LANGUAGE plpgsql AS $guard$
-- typeorm-unique-text names: generated, do not edit; see maintainers/protocol-names.md of the repository.
-- It refuses to change a name that is held but through its holder.
-- {"protocol":1, "kind":"names", "name":"direct",
-- "triggers":["40356b16","04591158","e1f7e511","652b399e"]}
BEGIN
  IF NOT (TG_TABLE_NAME OPERATOR(pg_catalog.=) 'names'
    AND pg_catalog.pg_table_is_visible(TG_RELID)) THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
      MESSAGE = 'the triggers of names name another table or column than their own',
      HINT = 'Something was renamed: create the triggers again, for instance by a new migration.',
      SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;
  IF TG_OP OPERATOR(pg_catalog.=) 'DELETE' AND NOT OLD."state" OPERATOR(pg_catalog.=) 'held' THEN
    RETURN OLD;
  ELSIF (TG_OP OPERATOR(pg_catalog.=) 'INSERT'
      OR TG_OP OPERATOR(pg_catalog.=) 'UPDATE' AND NOT OLD."state" OPERATOR(pg_catalog.=) 'held')
    AND (NEW."state" OPERATOR(pg_catalog.=) 'reserved' OR NEW."state" OPERATOR(pg_catalog.=) 'redirect') THEN
    RETURN NEW;
  ELSIF TG_OP OPERATOR(pg_catalog.=) 'UPDATE'
    AND NOT (
      pg_catalog.record_image_ne(ROW(
        OLD."namespace", OLD."text", OLD."holder", OLD."holder_column", OLD."holder_key", OLD."state"
      ), ROW(
        NEW."namespace", NEW."text", NEW."holder", NEW."holder_column", NEW."holder_key", NEW."state"
      ))
    ) THEN
    RETURN NEW;
  ELSIF TG_OP OPERATOR(pg_catalog.=) 'TRUNCATE' AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_trigger AS t
    JOIN pg_catalog.pg_proc AS p ON p.oid OPERATOR(pg_catalog.=) t.tgfoid
    WHERE pg_catalog.strpos(p.prosrc, '-- typeorm-unique-text names') OPERATOR(pg_catalog.>) 0
      AND t.tgrelid OPERATOR(pg_catalog.<>) TG_RELID
      -- Of this table of names: its schema is where they find names, or stands before its name. Settings of the
      -- session decide what is quoted.
      AND (pg_catalog.strpos(
        pg_catalog.translate(pg_catalog.array_to_string(p.proconfig, ' '), '"', ''),
        pg_catalog.translate(pg_catalog.format(' %s,', TG_TABLE_SCHEMA), '"', '')) OPERATOR(pg_catalog.>) 0
      OR pg_catalog.strpos(
        pg_catalog.translate(p.prosrc, '"', ''),
        pg_catalog.translate(pg_catalog.concat(TG_TABLE_SCHEMA, '.', TG_TABLE_NAME), '"', '')) OPERATOR(pg_catalog.>) 0)
      AND pg_catalog.pg_relation_size(t.tgrelid) OPERATOR(pg_catalog.>) 0
  ) THEN
    -- The holders' tables are empty too, perhaps by the same statement.
    RETURN NULL;
  END IF;
  RAISE EXCEPTION USING ERRCODE = 'UT003',
    MESSAGE = 'a name that is held cannot be written directly, and a former one is "reserved" or "redirect"',
    HINT = 'Change or delete the row that holds it: the name follows in the same statement.',
    SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
END
$guard$;
DO $guard$
DECLARE
  command pg_catalog.text;
BEGIN
  SELECT pg_catalog.string_agg(pg_catalog.format('%5$s REVOKE ALL ON FUNCTION %1$s FROM %2$s CASCADE;
      ALTER FUNCTION %1$s OWNER TO %3$s; ALTER FUNCTION %1$s SECURITY DEFINER
      SET enable_seqscan TO off SET row_security TO off SET search_path TO pg_catalog, %4$s, pg_temp',
      f.oid::pg_catalog.regprocedure, pg_catalog.concat_ws(', ', 'PUBLIC', (
        SELECT pg_catalog.string_agg(a.grantee::pg_catalog.regrole::pg_catalog.text, ', ')
        FROM pg_catalog.aclexplode(f.proacl) AS a
        WHERE a.grantee OPERATOR(pg_catalog.<>) ALL (ARRAY[0::pg_catalog.oid, f.proowner]))),
      t.relowner::pg_catalog.regrole, t.relnamespace::pg_catalog.regnamespace, (
        SELECT pg_catalog.string_agg(pg_catalog.format('ALTER EXTENSION %I DROP FUNCTION %s;',
          e.extname, f.oid::pg_catalog.regprocedure), ' ')
        FROM pg_catalog.pg_depend AS d JOIN pg_catalog.pg_extension AS e ON e.oid OPERATOR(pg_catalog.=) d.refobjid
        WHERE d.classid OPERATOR(pg_catalog.=) f.tableoid AND d.objid OPERATOR(pg_catalog.=) f.oid
          AND d.refclassid OPERATOR(pg_catalog.=) e.tableoid AND d.deptype OPERATOR(pg_catalog.=) 'e')), '; ')
    INTO command
    FROM (VALUES
      ('"unique_name_names_refuse"()', '"names"')) AS v (f, t)
    JOIN pg_catalog.pg_proc AS f ON f.oid OPERATOR(pg_catalog.=) v.f::pg_catalog.regprocedure
    JOIN pg_catalog.pg_class AS t ON t.oid OPERATOR(pg_catalog.=) v.t::pg_catalog.regclass;
  EXECUTE command;
END
$guard$;

CREATE TRIGGER "unique_name_names_insert" BEFORE INSERT ON "names" FOR EACH ROW
  WHEN (pg_catalog.pg_trigger_depth() OPERATOR(pg_catalog.=) 0) EXECUTE FUNCTION "unique_name_names_refuse"();

CREATE TRIGGER "unique_name_names_update" BEFORE UPDATE ON "names" FOR EACH ROW
  WHEN (pg_catalog.pg_trigger_depth() OPERATOR(pg_catalog.=) 0) EXECUTE FUNCTION "unique_name_names_refuse"();

CREATE TRIGGER "unique_name_names_delete" BEFORE DELETE ON "names" FOR EACH ROW
  WHEN (pg_catalog.pg_trigger_depth() OPERATOR(pg_catalog.=) 0) EXECUTE FUNCTION "unique_name_names_refuse"();

CREATE TRIGGER "unique_name_names_truncate" AFTER TRUNCATE ON "names" FOR EACH STATEMENT
  EXECUTE FUNCTION "unique_name_names_refuse"();
