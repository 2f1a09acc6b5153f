-- typeorm-unique-text: what is attached, version 1. It serves texts.sql, names.sql and numbers.sql.
--
--   SELECT * FROM unique_text_report_v1();
--
-- Each trigger of ours has one argument, as jsonb. Triggers of a table with one kind and name belong together, whatever
-- they are called. The argument of one of them, the main trigger, is the whole declaration. attach writes into it:
--   kind, name   'text', 'name', 'number', or 'adopt' while a text is adopted, and the property
--   as_of        of names, the transaction of the last attach; the other triggers have these three and nothing else
--   protocol     the version of what the triggers do
--   serves       the oldest protocol of a release that can work with them, if it is not the same
--   on           the schema and the name of the table for which the code was made
--   triggers     the pg_trigger.tgtype of each trigger
--   bodies       the SHA-256 of the types and bodies of the triggers' functions, in the order of types and of bodies
--   index        the name of the unique index, if there is one
--   check        the name of the check, if there is one
-- A declaration is shown and compared, and never executed: another role may have written it.

CREATE FUNCTION "unique_text_report_v1"()
RETURNS TABLE (on_table pg_catalog.regclass, property pg_catalog.text, kind pg_catalog.text, version pg_catalog.int4,
  declaration pg_catalog.jsonb, problems pg_catalog.text[])
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $report$
-- Returns a row for each text, name and number that is attached. Its problems are empty if nothing is wrong.
#variable_conflict use_column
DECLARE
  one record;
  triggers oid[];
BEGIN
  -- A row for each declaration, and one for triggers without a main one. What these have in their braces is in no other
  -- argument.
  FOR one IN SELECT DISTINCT g.tgrelid, g.tgargs, c.relowner, g.tgrelid::regclass::text AS name
    FROM pg_trigger AS g JOIN pg_class AS c ON c.oid = g.tgrelid
    WHERE g.tgparentid = 0 AND g.tgnargs = 1 AND (position('"bodies": ' IN g.tgargs) > 0
      OR position('{"kind": "' IN g.tgargs) = 1 AND NOT EXISTS (
        SELECT FROM pg_trigger AS main WHERE main.tgrelid = g.tgrelid AND main.tgparentid = 0 AND main.tgnargs = 1
          AND main.tgargs <> g.tgargs
          AND position(substring(g.tgargs FROM 2 FOR octet_length(g.tgargs) - 3) IN main.tgargs) > 0))
    ORDER BY name, g.tgargs
  LOOP
    on_table := one.tgrelid;
    BEGIN
      property := NULL;
      kind := NULL;
      version := NULL;
      declaration := NULL;
      declaration := convert_from(substring(one.tgargs FROM 1 FOR octet_length(one.tgargs) - 1), 'UTF8');
      property := declaration->>'name';
      kind := declaration->>'kind';
      version := declaration->>'protocol';
      triggers := ARRAY(SELECT g.oid FROM pg_trigger AS g WHERE g.tgrelid = on_table AND g.tgparentid = 0
        AND position(convert_to(format('"kind": %s, "name": %s', declaration->'kind', declaration->'name'), 'UTF8')
          IN g.tgargs) > 0);
      -- Triggers of one type may be several.
      SELECT array_agg(format('a trigger %s %s is missing', CASE WHEN w.type & 2 > 0 THEN 'BEFORE' ELSE 'AFTER' END,
          concat_ws(' OR ', CASE WHEN w.type & 4 > 0 THEN 'INSERT' END, CASE WHEN w.type & 16 > 0 THEN 'UPDATE' END,
            CASE WHEN w.type & 8 > 0 THEN 'DELETE' END, CASE WHEN w.type & 32 > 0 THEN 'TRUNCATE' END)) ORDER BY w.type)
        INTO problems
        FROM (SELECT e.type::integer, count(*) FROM jsonb_array_elements_text(declaration->'triggers') AS e (type)
          GROUP BY e.type) AS w (type, wanted)
        WHERE w.wanted > (SELECT count(*) FROM pg_trigger AS g WHERE g.oid = ANY (triggers) AND g.tgtype = w.type);
      SELECT problems || CASE count(*) WHEN 1 THEN NULL WHEN 0 THEN ARRAY['its main trigger is missing']
          ELSE ARRAY['it has several main triggers'] END INTO problems
        FROM pg_trigger AS g WHERE g.oid = ANY (triggers) AND position('"bodies": ' IN g.tgargs) > 0;
      IF problems IS NULL THEN
        SELECT array_agg('the code of its functions differs'::text) INTO problems
          FROM (SELECT string_agg(format('%s %s', g.tgtype, p.prosrc), '' ORDER BY g.tgtype, p.prosrc COLLATE "C")
            FROM pg_trigger AS g JOIN pg_proc AS p ON p.oid = g.tgfoid WHERE g.oid = ANY (triggers)) AS c (code)
          WHERE declaration->>'bodies' IS DISTINCT FROM encode(sha256(convert_to(c.code, 'UTF8')), 'hex');
      END IF;
      SELECT problems || array_agg(w.problem ORDER BY w.problem) INTO problems FROM (
        SELECT format('the trigger %I is disabled', g.tgname) FROM pg_trigger AS g
          WHERE g.oid = ANY (triggers) AND g.tgenabled NOT IN ('O', 'A')
        UNION ALL SELECT format('the trigger %I has no condition', g.tgname) FROM pg_trigger AS g
          WHERE kind = 'text' AND g.oid = ANY (triggers) AND g.tgqual IS NULL
        UNION ALL SELECT DISTINCT concat('the function ', p.oid::regprocedure, ' ') || CASE
            WHEN p.proowner <> one.relowner THEN 'does not belong to the owner of the table'
            WHEN NOT p.prosecdef THEN 'is not SECURITY DEFINER'
            WHEN p.proisstrict OR p.provolatile <> 'v' OR p.proparallel <> 'u'
              OR replace(array_to_string(p.proconfig, ';'), '"', '') IS DISTINCT FROM
              'search_path=pg_catalog, pg_temp;enable_seqscan=off;row_security=off' THEN 'has other settings'
            WHEN EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
              WHERE a.grantee <> p.proowner) THEN 'may be executed by a role that does not own it'
            WHEN EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid
              AND d.deptype IN ('e', 'x')) THEN 'belongs to an extension' END
          FROM pg_proc AS p WHERE p.oid IN (SELECT g.tgfoid FROM pg_trigger AS g WHERE g.oid = ANY (triggers))
        UNION ALL SELECT 'its table was renamed' || CASE kind WHEN 'text'
            THEN ', so that an INSERT without hash costs more' ELSE '' END WHERE declaration ? 'on' AND NOT EXISTS (
          SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
            WHERE c.oid = on_table AND declaration->'on' = jsonb_build_array(n.nspname, c.relname))
        UNION ALL SELECT 'its columns were renamed' FROM pg_trigger AS g
          WHERE g.oid = ANY (triggers) AND to_jsonb(ARRAY(
            SELECT a.attname FROM unnest(g.tgattr) WITH ORDINALITY AS k (attnum, position)
              JOIN pg_attribute AS a ON a.attrelid = g.tgrelid AND a.attnum = k.attnum ORDER BY k.position
          )) <> CASE WHEN kind = 'text' AND g.tgtype = 23 THEN (declaration->'text') || (declaration->'scope')
              || (declaration->'hash') || (declaration->'number') || (declaration->'chained')
              || coalesce(declaration->'deleted', '[]')
            WHEN kind = 'number' AND g.tgtype IN (22, 30) THEN (declaration->'scope') || (declaration->'number')
              || CASE declaration->'count' WHEN 'true' THEN coalesce(declaration->'deleted', '[]') ELSE '[]' END END
        UNION ALL SELECT format('the trigger %I fires before those that it must follow', g.tgname) FROM pg_trigger AS g
          WHERE kind = 'text' AND g.oid = ANY (triggers) AND g.tgtype = 23 AND EXISTS (SELECT FROM pg_trigger AS place
            WHERE place.oid = ANY (triggers) AND place.tgtype IN (7, 19) AND place.tgname > g.tgname)
        UNION ALL SELECT 'its unique index is missing or invalid' WHERE declaration ? 'index' AND NOT EXISTS (
          SELECT FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid WHERE i.indrelid = on_table
            AND c.relname = declaration->>'index' AND i.indisunique AND i.indisvalid)
        UNION ALL SELECT 'its unique index has other columns'
          FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
          WHERE kind = 'text' AND i.indrelid = on_table AND c.relname = declaration->>'index' AND NOT to_jsonb(ARRAY(
            SELECT coalesce(a.attname, '') FROM unnest(i.indkey) WITH ORDINALITY AS k (attnum, position)
              LEFT JOIN pg_attribute AS a ON a.attrelid = on_table AND a.attnum = k.attnum
              WHERE k.position <= i.indnkeyatts
          )) <@ ((declaration->'scope') || (declaration->'hash') || (declaration->'number'))
        UNION ALL SELECT 'its check is missing or not valid' WHERE declaration ? 'check' AND NOT EXISTS (
          SELECT FROM pg_constraint AS k WHERE k.conrelid = on_table AND k.contype = 'c'
            AND k.conname = declaration->>'check' AND k.convalidated)
      ) AS w (problem) WHERE w.problem IS NOT NULL;
      problems := coalesce(problems, '{}');
    EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
      problems := ARRAY['its declaration is not one that attach writes'];
    END;
    RETURN NEXT;
  END LOOP;
END
$report$;
COMMENT ON FUNCTION "unique_text_report_v1"() IS
  'typeorm-unique-text: shows each text, name and number that is attached, its declaration, and what is wrong with it.';
