DROP FUNCTION IF EXISTS "unique_name_names_refuse"();

CREATE FUNCTION "unique_name_names_refuse"() RETURNS trigger LANGUAGE plpgsql AS $guard$
-- typeorm-unique-text names: generated, do not edit.
-- docs/protocol-names.md of the package says what it does.
BEGIN
  IF TG_OP = 'DELETE' AND OLD."state"::pg_catalog.text <> 'held' THEN
    RETURN OLD;
  ELSIF TG_OP IN ('INSERT', 'UPDATE') AND NEW."state"::pg_catalog.text IN ('reserved', 'redirect')
    AND (TG_OP = 'INSERT' OR OLD."state"::pg_catalog.text <> 'held') THEN
    RETURN NEW;
  ELSIF TG_OP = 'UPDATE' AND OLD."namespace"::pg_catalog.text IS NOT DISTINCT FROM NEW."namespace"::pg_catalog.text
    AND OLD."text" IS NOT DISTINCT FROM NEW."text"
    AND OLD."holder"::pg_catalog.text IS NOT DISTINCT FROM NEW."holder"::pg_catalog.text
    AND OLD."holder_column"::pg_catalog.text IS NOT DISTINCT FROM NEW."holder_column"::pg_catalog.text
    AND OLD."holder_key" IS NOT DISTINCT FROM NEW."holder_key"
    AND OLD."state"::pg_catalog.text IS NOT DISTINCT FROM NEW."state"::pg_catalog.text THEN
    RETURN NEW;
  ELSIF TG_OP = 'TRUNCATE' AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_trigger AS t
    JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid
    WHERE pg_catalog.strpos(p.prosrc, '-- typeorm-unique-text names') BETWEEN 1 AND 9
      AND t.tgrelid <> TG_RELID
      -- Of this table of names: its schema is where they find names, or stands before its name.
      AND pg_catalog.strpos(
        pg_catalog.array_to_string(p.proconfig, ' ') || p.prosrc, pg_catalog.quote_ident(TG_TABLE_SCHEMA)) > 0
      AND pg_catalog.pg_relation_size(t.tgrelid) > 0
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
"triggers":["da01a7b6","30962f17","fce61557","40f84999"]}';

CREATE TRIGGER "unique_name_names_insert"
  BEFORE INSERT ON "names"
  FOR EACH ROW WHEN (pg_catalog.pg_trigger_depth() = 0)
  EXECUTE FUNCTION "unique_name_names_refuse"();

CREATE TRIGGER "unique_name_names_update"
  BEFORE UPDATE ON "names"
  FOR EACH ROW WHEN (pg_catalog.pg_trigger_depth() = 0)
  EXECUTE FUNCTION "unique_name_names_refuse"();

CREATE TRIGGER "unique_name_names_delete"
  BEFORE DELETE ON "names"
  FOR EACH ROW WHEN (pg_catalog.pg_trigger_depth() = 0)
  EXECUTE FUNCTION "unique_name_names_refuse"();

CREATE TRIGGER "unique_name_names_truncate"
  AFTER TRUNCATE ON "names"
  FOR EACH STATEMENT
  EXECUTE FUNCTION "unique_name_names_refuse"();
