DROP FUNCTION IF EXISTS "unique_name_names_refuse"();

CREATE FUNCTION "unique_name_names_refuse"() RETURNS trigger LANGUAGE plpgsql AS $guard$
-- typeorm-unique-text names: generated, do not edit.
-- docs/protocol-names.md of the package says what it does.
BEGIN
  IF TG_OP OPERATOR(pg_catalog.=) 'DELETE' AND NOT OLD."state" OPERATOR(pg_catalog.=) 'held' THEN
    RETURN OLD;
  ELSIF (TG_OP OPERATOR(pg_catalog.=) 'INSERT'
      OR TG_OP OPERATOR(pg_catalog.=) 'UPDATE' AND NOT OLD."state" OPERATOR(pg_catalog.=) 'held')
    AND (NEW."state" OPERATOR(pg_catalog.=) 'reserved' OR NEW."state" OPERATOR(pg_catalog.=) 'redirect') THEN
    RETURN NEW;
  ELSIF TG_OP OPERATOR(pg_catalog.=) 'UPDATE'
    AND NOT (
      ROW(
        OLD."namespace", OLD."text", OLD."holder", OLD."holder_column", OLD."holder_key", OLD."state"
      )::pg_catalog.record
      OPERATOR(pg_catalog.*<>) ROW(
        NEW."namespace", NEW."text", NEW."holder", NEW."holder_column", NEW."holder_key", NEW."state"
      )::pg_catalog.record
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
  made pg_catalog.regprocedure;
  home text;
  owner text;
BEGIN
  IF pg_catalog.current_setting('server_encoding') <> 'UTF8' THEN
    RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'the encoding of the database must be UTF8: md5() sees bytes';
  END IF;
  SELECT relnamespace::pg_catalog.regnamespace, relowner::pg_catalog.regrole INTO STRICT home, owner
    FROM pg_catalog.pg_class WHERE oid = '"names"'::pg_catalog.regclass;
  FOREACH made IN ARRAY ARRAY[
    '"unique_name_names_refuse"()'
  ]::pg_catalog.regprocedure[] LOOP
    -- Nobody but the owner puts them on a table, whatever default privileges have granted.
    EXECUTE pg_catalog.format('REVOKE ALL ON FUNCTION %s FROM %s CASCADE', made, (
      SELECT pg_catalog.concat_ws(', ', 'PUBLIC', pg_catalog.string_agg(a.grantee::pg_catalog.regrole::text, ', '))
        FROM pg_catalog.pg_proc AS p, pg_catalog.aclexplode(p.proacl) AS a
       WHERE p.oid = made AND a.grantee NOT IN (0, p.proowner)
    ));
    EXECUTE pg_catalog.format('ALTER FUNCTION %s OWNER TO %s', made, owner);
    EXECUTE pg_catalog.format('
      ALTER FUNCTION %s
        -- As the owner: a role that may only INSERT could not read the chain, and row security would hide it.
        SECURITY DEFINER
        -- Plans are cached while the table is tiny; a bulk insert would go on with sequential scans.
        SET enable_seqscan TO off
        -- A policy that would hide a chain, by FORCE or from another owner, is an error 42501 in place of a gap.
        SET row_security TO off
        -- Temporary tables last, that nobody can put an object of his own in the way of the owner.
        SET search_path TO pg_catalog, %s, pg_temp', made, home);
  END LOOP;
END
$guard$;

COMMENT ON FUNCTION "unique_name_names_refuse"() IS
'typeorm-unique-text: refuses to change a name that is held but through its holder.
{"protocol":1, "kind":"names", "name":"direct", "columns":{},
"triggers":["3c7453ce","4858331d","56f04f49","40f84999"]}';

CREATE TRIGGER "unique_name_names_insert"
  BEFORE INSERT ON "names"
  FOR EACH ROW WHEN (pg_catalog.pg_trigger_depth() OPERATOR(pg_catalog.=) 0)
  EXECUTE FUNCTION "unique_name_names_refuse"();

CREATE TRIGGER "unique_name_names_update"
  BEFORE UPDATE ON "names"
  FOR EACH ROW WHEN (pg_catalog.pg_trigger_depth() OPERATOR(pg_catalog.=) 0)
  EXECUTE FUNCTION "unique_name_names_refuse"();

CREATE TRIGGER "unique_name_names_delete"
  BEFORE DELETE ON "names"
  FOR EACH ROW WHEN (pg_catalog.pg_trigger_depth() OPERATOR(pg_catalog.=) 0)
  EXECUTE FUNCTION "unique_name_names_refuse"();

CREATE TRIGGER "unique_name_names_truncate"
  AFTER TRUNCATE ON "names"
  FOR EACH STATEMENT
  EXECUTE FUNCTION "unique_name_names_refuse"();
