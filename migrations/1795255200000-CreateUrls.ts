import { MigrationInterface, QueryRunner } from 'typeorm'

export class CreateUrls1795255200000 implements MigrationInterface {
  name = 'CreateUrls1795255200000'

  public async up(queryRunner: QueryRunner): Promise<void> {
    await queryRunner.query(`-- typeorm-unique-text: what is attached, version 1. It serves texts.sql, names.sql and numbers.sql.
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
`)
    await queryRunner.query(`-- typeorm-unique-text: how functions and triggers are made and dropped, version 1. It serves all kinds.
--
-- attach of a text is clean(create(code(declaration))), and detach is clean(drop(name)). A plan goes from each to the
-- next. A function with RETURN finds the others once, when it is created: nobody can put another one before them later.
-- All of them run as their caller.

CREATE FUNCTION "unique_text_create_v1"(on_table pg_catalog.regclass, plan pg_catalog.jsonb)
RETURNS pg_catalog.jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $create$
-- Makes the functions and triggers of the plan, or replaces those that the locked table has of this kind and name:
--   declaration   what the main trigger gets as its argument; the others get kind, name and as_of
--   guard, main   the first part of the names of triggers, and the pg_trigger.tgtype of the main one
--   functions     each with name and body; one that is shared serves all declarations of an owner in a schema
--   triggers      each with type, the end of its name, the number of the function that it runs, and when it fires
-- Adds to the plan what the table had and has: the OIDs of the former functions, and of those that are made.
DECLARE
  declaration CONSTANT jsonb := plan->'declaration';
  kind_and_name CONSTANT jsonb := jsonb_build_object('kind', declaration->'kind', 'name', declaration->'name');
  short CONSTANT jsonb := kind_and_name || CASE WHEN declaration ? 'as_of'
    THEN jsonb_build_object('as_of', declaration->'as_of') ELSE '{}' END;
  t pg_class;
  home name;
  argument jsonb;
  -- What the table has of this kind and name, from an attach of this version or another one.
  former oid[];
  former_functions oid[];
  function oid;
  functions oid[] := '{}';
  is_sound boolean;
  free_name text;
  others text;
  names text;
  kept name[] := '{}';
  one record;
BEGIN
  SELECT c.* INTO t FROM pg_class AS c WHERE c.oid = on_table;
  SELECT n.nspname INTO home FROM pg_namespace AS n WHERE n.oid = t.relnamespace;
  IF NOT pg_has_role(t.relowner, 'USAGE') THEN
    RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('must be owner of table %s', on_table),
      HINT = format('SET ROLE %s;', t.relowner::regrole);
  END IF;
  SELECT array_agg(g.oid), array_agg(DISTINCT g.tgfoid) INTO former, former_functions
    FROM pg_trigger AS g WHERE g.tgrelid = on_table AND g.tgparentid = 0
      AND position(convert_to(btrim(kind_and_name::text, '{}'), 'UTF8') IN g.tgargs) > 0;

  -- Nobody else may put the functions on a table, whatever default privileges grant. One that exists is kept, or mended
  -- in place, unless another trigger runs it.
  FOR one IN SELECT * FROM jsonb_to_recordset(plan->'functions') AS f (name text, body text, shared boolean) LOOP
    SELECT p.oid, p.prosrc = one.body AND p.prosecdef AND NOT p.proisstrict AND p.provolatile = 'v'
        AND p.proparallel = 'u' AND replace(array_to_string(p.proconfig, ';'), '"', '') =
          'search_path=pg_catalog, pg_temp;enable_seqscan=off;row_security=off'
        AND NOT EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
          WHERE a.grantee <> p.proowner)
      INTO function, is_sound FROM pg_proc AS p
      WHERE p.pronamespace = t.relnamespace AND p.proowner = t.relowner AND p.pronargs = 0
        AND p.prorettype = 'trigger'::regtype AND (p.proname = one.name OR p.prosrc = one.body)
        AND (one.shared OR NOT EXISTS (SELECT FROM pg_trigger AS g
          WHERE g.tgfoid = p.oid AND g.tgparentid = 0 AND g.oid = ANY (former) IS NOT TRUE))
        AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid
          AND d.deptype IN ('e', 'x'))
      ORDER BY 2 DESC NULLS LAST LIMIT 1;
    IF is_sound IS NOT TRUE THEN
      free_name := one.name;
      FOR more IN 2..1000 LOOP
        EXIT WHEN NOT EXISTS (SELECT FROM pg_proc AS p WHERE p.pronamespace = t.relnamespace AND p.proname = free_name);
        free_name := concat(one.name, '_', more);
      END LOOP;
      -- Plans are cached while a table is tiny, hence enable_seqscan. A policy that hides a row raises 42501.
      EXECUTE format('CREATE %s FUNCTION %s RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET row_security = off AS %L',
        CASE WHEN function IS NOT NULL THEN 'OR REPLACE' END,
        coalesce(function::regprocedure::text, format('%I.%I()', home, free_name)), one.body);
      function := coalesce(function, format('%I.%I()', home, free_name)::regprocedure);
      SELECT string_agg(DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END, ', ')
        INTO others FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
        WHERE p.oid = function AND a.grantee <> p.proowner;
      IF others IS NOT NULL THEN
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %s CASCADE', function::regprocedure, others);
      END IF;
      EXECUTE format('ALTER FUNCTION %s OWNER TO %s', function::regprocedure, t.relowner::regrole);
    END IF;
    -- A function that exists gets its comment, too, because this locks it until the end: CREATE TRIGGER does not, and
    -- another transaction that sees no trigger of this one could drop it.
    EXECUTE format('COMMENT ON FUNCTION %s IS %L', function::regprocedure, format(
      'typeorm-unique-text: %s removes it with the last trigger that runs it.', CASE declaration->>'kind'
        WHEN 'text' THEN 'unique_text_detach_v1' WHEN 'adopt' THEN 'the command adopt'
        ELSE format('unique_text_detach_%s_v1', declaration->>'kind') END));
    functions := functions || function;
  END LOOP;

  -- Triggers of one kind and name belong together, by which detach and report find them. Only the main trigger has the
  -- whole declaration, because Postgres copies all arguments at each statement.
  SELECT declaration || jsonb_build_object('on', jsonb_build_array(home, t.relname),
      'triggers', jsonb_agg(v.type ORDER BY v.type), 'bodies', encode(sha256(convert_to(string_agg(
        format('%s %s', v.type, plan->'functions'->(v.runs - 1)->>'body'), '' ORDER BY v.type), 'UTF8')), 'hex'))
    INTO argument FROM jsonb_to_recordset(plan->'triggers') AS v (type integer, runs integer);
  -- Triggers fire in the order of their names. After a rename of the table these remain, if all have one first part.
  SELECT CASE WHEN count(*) = cardinality(former) AND min(v.first) = max(v.first) THEN min(v.first)
      ELSE plan->>'guard' END INTO names
    FROM (SELECT left(g.tgname, -length(v.suffix)) FROM pg_trigger AS g
      JOIN jsonb_to_recordset(plan->'triggers') AS v (type integer, suffix text)
        ON v.type = g.tgtype AND right(g.tgname, length(v.suffix)) = v.suffix
      WHERE g.oid = ANY (former)) AS v (first);
  FOR one IN SELECT v.*, concat(names, v.suffix) AS name
    FROM jsonb_to_recordset(plan->'triggers') AS v (type integer, suffix text, runs integer, fires text)
  LOOP
    IF EXISTS (SELECT FROM pg_trigger AS g WHERE g.tgrelid = on_table AND g.tgname = one.name
        AND g.oid = ANY (former) IS NOT TRUE) THEN
      RAISE EXCEPTION USING ERRCODE = '42710', MESSAGE = format('another trigger has the name %I', one.name),
        HINT = 'Rename that trigger, or give the names of these another first part by the key guard.';
    END IF;
    -- To replace a trigger waits for writers, but not for readers, as DROP TRIGGER does.
    EXECUTE format('CREATE OR REPLACE TRIGGER %I %s EXECUTE FUNCTION %s(%L)', one.name, one.fires,
      functions[one.runs]::regproc, CASE one.type WHEN (plan->'main')::integer THEN argument ELSE short END);
    kept := kept || one.name::name;
  END LOOP;
  FOR one IN SELECT g.tgname FROM pg_trigger AS g WHERE g.oid = ANY (former) AND g.tgname <> ALL (kept) LOOP
    EXECUTE format('DROP TRIGGER %I ON %s', one.tgname, on_table);
  END LOOP;
  -- What was made has been found by name. The owner of the schema may have renamed that while attach waited.
  IF EXISTS (SELECT FROM unnest(functions) AS f (oid) JOIN pg_proc AS p USING (oid)
      WHERE p.pronamespace <> t.relnamespace) OR cardinality(kept) <> (SELECT count(*) FROM pg_trigger AS g
        WHERE g.tgrelid = on_table AND g.tgname = ANY (kept) AND g.tgfoid = ANY (functions)) THEN
    RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'the schema was renamed meanwhile';
  END IF;
  RETURN plan || jsonb_build_object('former', former_functions, 'made', functions);
END
$create$;
COMMENT ON FUNCTION "unique_text_create_v1"(pg_catalog.regclass, pg_catalog.jsonb) IS
  'typeorm-unique-text: makes the functions and triggers of a declaration.';

CREATE FUNCTION "unique_text_drop_v1"(on_table pg_catalog.regclass, kind pg_catalog.text, property pg_catalog.text)
RETURNS pg_catalog.jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $drop$
-- Drops the triggers of a declaration. Returns their functions as the former ones of a plan, or null without triggers.
DECLARE
  argument CONSTANT bytea := convert_to(btrim(jsonb_build_object('kind', kind, 'name', property)::text, '{}'), 'UTF8');
  functions oid[];
  one record;
BEGIN
  PERFORM FROM pg_trigger AS g WHERE g.tgrelid = on_table AND g.tgparentid = 0
    AND position(argument IN g.tgargs) > 0;
  IF FOUND THEN
    -- DROP TRIGGER locks the table like this. Locked first, it shows what another detach has committed.
    EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', on_table);
  END IF;
  FOR one IN SELECT g.tgname, g.tgfoid FROM pg_trigger AS g WHERE g.tgrelid = on_table AND g.tgparentid = 0
      AND position(argument IN g.tgargs) > 0 LOOP
    EXECUTE format('DROP TRIGGER %I ON %s', one.tgname, on_table);
    functions := functions || one.tgfoid;
  END LOOP;
  RETURN jsonb_build_object('former', functions);
END
$drop$;
COMMENT ON FUNCTION "unique_text_drop_v1"(pg_catalog.regclass, pg_catalog.text, pg_catalog.text) IS
  'typeorm-unique-text: drops the triggers of a declaration.';

CREATE FUNCTION "unique_text_clean_v1"(on_table pg_catalog.regclass, plan pg_catalog.jsonb)
RETURNS pg_catalog.bool LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $clean$
-- Drops those of the former functions that no trigger runs any more. The owner of the table may have put a function of
-- another role into a trigger: only its comment, which that role controls, shows one that an attach made before the
-- table got another owner. Returns whether there were any functions.
DECLARE
  one record;
BEGIN
  FOR one IN SELECT p.oid FROM pg_proc AS p JOIN pg_class AS c ON c.oid = on_table
    WHERE plan->'former' @> to_jsonb(p.oid) AND pg_has_role(p.proowner, 'USAGE')
      AND (p.proowner = c.relowner OR starts_with(obj_description(p.oid, 'pg_proc'), 'typeorm-unique-text: ')
        AND NOT EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
          WHERE a.grantee <> p.proowner))
      AND NOT EXISTS (SELECT FROM pg_trigger AS g WHERE g.tgfoid = p.oid)
      AND NOT EXISTS (SELECT FROM pg_depend AS d
        WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
  LOOP
    EXECUTE format('DROP FUNCTION %s', one.oid::regprocedure);
  END LOOP;
  RETURN plan->'former' <> 'null';
END
$clean$;
COMMENT ON FUNCTION "unique_text_clean_v1"(pg_catalog.regclass, pg_catalog.jsonb) IS
  'typeorm-unique-text: drops functions that no trigger runs any more.';
`)
    await queryRunner.query(`-- typeorm-unique-text: unique texts, version 1.
--
--   SELECT unique_text_attach_v1('page', '{"name": "url", "text": ["url"], "index": "page_url"}');
--   SELECT unique_text_detach_v1('page', 'url');
--   SELECT * FROM unique_text_report_v1();       -- report.sql
--
-- Rows of equal scope and hash form a chain. A unique index covers scope, hash and number. The row with number 0 is the
-- anchor of its chain. Three rules hold at the end of each statement (maintainers/protocol.md shows why):
--   1. No two rows of a chain hold one text.
--   2. A chain that has rows has an anchor.
--   3. The anchor is flagged if its chain has other rows.
-- So an INSERT that sends the hash and number 0 needs no trigger: the check proves the hash, and the index decides.
--
-- attach and detach run as their caller. The trigger functions run as the owner of the table, because a role
-- that may only INSERT reads no chain. Every function finds only what pg_catalog has, and knows tables by their OID.
-- attach.sql makes and drops the functions and triggers that this part describes.

CREATE FUNCTION "unique_text_chain_code_v1"()
RETURNS pg_catalog.text LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $code$
-- The trigger function that keeps chains. All texts of an owner in a schema share it. It runs only for texts of equal
-- hash. It takes the table from the trigger that fires, and the declaration from the main trigger.
SELECT $chain$
#variable_conflict use_variable
DECLARE
  property CONSTANT jsonb := TG_ARGV[0]::jsonb->'name';
  declaration jsonb;
  fires boolean;
  is_whole boolean;
  index_name text;
  longest integer;
  texts integer;
  scopes integer;
  -- Rows of children by INHERITS are no rows of the table.
  own CONSTANT text := format('ONLY %s', TG_RELID::regclass);
  -- The columns by their present names: texts, scopes, hash, number, flag, delete date.
  columns text[];
  name text;
  number text;
  flag text;
  -- Conditions on the given row ($1), and on rows s and t of the table.
  t_in_chain text := 'true';
  s_in_chain text := 'true';
  t_has_text text := 'true';
  s_has_text_of_t text := 'true';
  t_is_live text := 'true';
  s_is_live text := 'true';
  given_is_live text := 'true';
  -- Conditions on the old row ($1) and the new row ($2) of an UPDATE.
  chain_stays text := 'true';
  text_stays text := 'true';
  new_is_live text := 'true';
  lowest integer;
  spot tid;
  highest integer;
  taken integer;
  length bigint;
  locked boolean := false;
  holds boolean;
  leaves boolean := false;
  comes boolean := false;
  given record;
BEGIN
  -- The main trigger has the declaration, and names the columns. pg_get_triggerdef uses no snapshot, and is NULL for a
  -- trigger that only an old snapshot shows. The queries below are parsed with the present names of columns, which
  -- pg_identify_object_as_address has at every isolation level.
  SELECT pg_get_triggerdef(fired.oid) IS NOT NULL, pg_get_triggerdef(main.oid) IS NOT NULL AND count(*) OVER () = 1,
      convert_from(substring(main.tgargs FROM 1 FOR octet_length(main.tgargs) - 1), 'UTF8'),
      ARRAY(SELECT a.object_names[3] FROM unnest(main.tgattr) WITH ORDINALITY AS k (attnum, position)
        CROSS JOIN pg_identify_object_as_address('pg_class'::regclass, TG_RELID, k.attnum) AS a ORDER BY k.position)
    INTO fires, is_whole, declaration, columns
    FROM pg_trigger AS fired LEFT JOIN pg_trigger AS main
      ON main.tgrelid = fired.tgrelid AND main.tgfoid = fired.tgfoid AND main.tgtype = 23
        AND position(convert_to(format('"kind": "text", "name": %s', property), 'UTF8') IN main.tgargs) > 0
    WHERE fired.tgrelid = TG_RELID AND fired.tgname = TG_NAME;
  index_name := coalesce(declaration->>'index', property->>0);
  IF fires IS NOT TRUE THEN
    -- The snapshot may hide new numbers, too.
    RAISE EXCEPTION USING ERRCODE = '40001', CONSTRAINT = index_name, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
      MESSAGE = 'the guard is newer than the snapshot of the transaction';
  ELSIF NOT is_whole OR NOT declaration ? 'bodies' THEN
    RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = index_name, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
      MESSAGE = 'the guard has lost its trigger BEFORE INSERT OR UPDATE, or has two',
      HINT = 'Create the guard again, for instance by a new migration.';
  END IF;
  longest := coalesce(declaration->>'maxChainLength', '100');
  texts := jsonb_array_length(declaration->'text');
  scopes := jsonb_array_length(declaration->'scope');
  -- A trigger on the table of another role may be a trap: casts and triggers of that table would run as our owner. This
  -- reads the owner of the row type, because Citus hides shards from queries of pg_class.
  IF NOT EXISTS (SELECT FROM pg_type AS y WHERE y.oid = format('%I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME)::regtype
      AND pg_get_userbyid(y.typowner) = CURRENT_USER) THEN
    RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = index_name, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
      MESSAGE = 'the guard does not belong to the owner of the table: a new migration creates it again',
      HINT = 'In SQL, unique_text_detach_v1 and then unique_text_attach_v1 create it again.';
  END IF;
  number := columns[texts + scopes + 2];
  flag := columns[texts + scopes + 3];
  FOREACH name IN ARRAY columns[texts + 1 : texts + scopes + 1] LOOP
    t_in_chain := concat(t_in_chain, format(' AND t.%1$I = ($1).%1$I', name));
    s_in_chain := concat(s_in_chain, format(' AND s.%1$I = ($1).%1$I', name));
    chain_stays := concat(chain_stays, format(' AND ($1).%1$I = ($2).%1$I', name));
  END LOOP;
  FOREACH name IN ARRAY columns[1 : texts] LOOP
    -- Bytewise, because a nondeterministic collation equates different texts.
    t_has_text := concat(t_has_text, format(
      ' AND (t.%1$I::text COLLATE "C" = ($1).%1$I::text OR t.%1$I IS NULL AND ($1).%1$I IS NULL)', name));
    s_has_text_of_t := concat(s_has_text_of_t, format(
      ' AND (s.%1$I::text COLLATE "C" = t.%1$I::text OR s.%1$I IS NULL AND t.%1$I IS NULL)', name));
    text_stays := concat(text_stays, format(
      ' AND (($1).%1$I::text COLLATE "C" = ($2).%1$I::text OR ($1).%1$I IS NULL AND ($2).%1$I IS NULL)', name));
  END LOOP;
  name := columns[texts + scopes + 4];
  IF name IS NOT NULL THEN
    -- A row that is deleted softly is in no chain.
    t_is_live := format('t.%I IS NULL', name);
    s_is_live := format('s.%I IS NULL', name);
    given_is_live := format('($1).%I IS NULL', name);
    new_is_live := format('($2).%I IS NULL', name);
  END IF;

  -- Place, BEFORE a row is written: find its number in a chain that is not empty.
  IF TG_WHEN = 'BEFORE' AND TG_OP = 'UPDATE' THEN
    -- An upsert that sets the text would do this to a row of another text that took its number meanwhile.
    EXECUTE format('SELECT %s AND %s', chain_stays, given_is_live) INTO holds USING OLD, NEW;
    IF holds THEN
      RAISE EXCEPTION USING ERRCODE = '40001', CONSTRAINT = index_name, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
        MESSAGE = 'a text cannot become another one of equal hash in place',
        HINT = 'An upsert met the row of another text: try again. An UPDATE: store the text as a new row.';
    END IF;
    -- A row that goes to another partition is in its chain there. With -1 it meets the INSERT triggers of that one.
    EXECUTE format('SELECT NOT (%s) FROM (SELECT ($1).*) AS t',
      coalesce(pg_get_partition_constraintdef(TG_RELID), 'true')) INTO holds USING NEW;
    IF holds THEN
      RETURN NEW;
    END IF;
  END IF;
  IF TG_WHEN = 'BEFORE' THEN
    FOR round IN 1..16 LOOP
      -- Once without the lock and, unless that is enough, once more under it: a new query has a new snapshot, which
      -- shows all that earlier holders of the lock have committed, and nobody can add more. Otherwise two transactions
      -- could give one text two numbers.
      EXECUTE format('SELECT min(t.%1$I), max(t.%1$I), count(*), min(t.%1$I) FILTER (WHERE %2$s)
          FROM %3$s AS t WHERE %4$s AND %5$s', number, t_has_text, own, t_in_chain, t_is_live)
        INTO lowest, highest, length, taken USING NEW;
      IF locked AND taken IS NULL AND length >= longest THEN
        RAISE EXCEPTION USING
          ERRCODE = 'UT002', CONSTRAINT = index_name, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
          MESSAGE = format('the chain is full: %s texts share one hash', longest);
      ELSIF locked THEN
        RETURN jsonb_populate_record(NEW, jsonb_build_object(number, coalesce(taken, highest + 1)));
      ELSIF highest IS NULL OR taken = 0 OR lowest > 0 THEN
        -- Empty, or taken at 0: the index decides, and knows no snapshots. Others but no anchor: this very statement
        -- took the anchor, and a lock would wait for ever. Settle compares what gets 0.
        RETURN jsonb_populate_record(NEW, jsonb_build_object(number, coalesce(taken, 0), flag, (lowest > 0) IS TRUE));
      END IF;
      -- The anchor is the mutex of the chain. At REPEATABLE READ this fails if it has changed since the snapshot.
      EXECUTE format('SELECT FROM %s AS t WHERE %s AND %s AND t.%I = 0 FOR NO KEY UPDATE',
        own, t_in_chain, t_is_live, number) USING NEW;
      GET DIAGNOSTICS length = ROW_COUNT;
      locked := length > 0;
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = '40001', CONSTRAINT = index_name, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
      MESSAGE = 'could not lock the anchor of a chain due to concurrent deletes';
  END IF;

  -- Settle, AFTER a row is written: did it leave a chain as the anchor, or come to one beside the anchor?
  IF TG_OP = 'INSERT' THEN
    EXECUTE format('SELECT %s', given_is_live) INTO comes USING NEW;
  ELSIF TG_OP = 'DELETE' THEN
    EXECUTE format('SELECT ($1).%I = 0 AND %s', number, given_is_live) INTO leaves USING OLD;
  ELSE
    EXECUTE format('SELECT o.anchor AND o.flag AND o.live AND (stays.chain IS NOT TRUE OR NOT n.live),
        n.live AND (n.later AND NOT stays.number
          OR (n.later OR n.flag) AND (stays.text IS NOT TRUE OR stays.chain IS NOT TRUE OR NOT o.live)
          OR o.flag AND NOT n.flag AND stays.chain AND o.live)
      FROM (SELECT %3$s, ($1).%1$I = 0, ($1).%2$I) AS o (live, anchor, flag),
        (SELECT %4$s, ($2).%1$I > 0, ($2).%2$I) AS n (live, later, flag),
        (SELECT %5$s, %6$s, ($1).%1$I = ($2).%1$I) AS stays (chain, text, number)',
      number, flag, given_is_live, new_is_live, chain_stays, text_stays) INTO leaves, comes USING OLD, NEW;
  END IF;
  FOR way IN 1..2 LOOP
    IF way = 1 THEN
      CONTINUE WHEN leaves IS NOT TRUE;
      given := OLD;
    ELSE
      CONTINUE WHEN comes IS NOT TRUE;
      given := NEW;
    END IF;
    EXECUTE format('SELECT t.%1$I, t.ctid FROM %2$s AS t WHERE %3$s AND %4$s ORDER BY t.%1$I LIMIT 1
      FOR NO KEY UPDATE', number, own, t_in_chain, t_is_live) INTO lowest, spot USING given;
    CONTINUE WHEN lowest IS NULL;
    -- Triggers of the user that fire by this UPDATE find the tables of this schema.
    PERFORM set_config('search_path', format('pg_catalog, %I, pg_temp', TG_TABLE_SCHEMA), true);
    IF lowest = 0 THEN
      -- A touch, also of a flagged anchor: its new version makes transactions with an older snapshot fail with 40001,
      -- in place of acting on that. A lock would leave no trace. An UPDATE of the number waits for foreign key checks.
      EXECUTE format('UPDATE %s AS t SET %I = true WHERE t.ctid = $1', own, flag) USING spot;
    ELSE
      -- A promotion: the lowest row becomes the anchor.
      EXECUTE format('UPDATE %s AS t SET %I = 0, %I = true WHERE t.ctid = $1', own, number, flag) USING spot;
    END IF;
    GET DIAGNOSTICS length = ROW_COUNT;
    PERFORM set_config('search_path', 'pg_catalog, pg_temp', true);
    -- The row was locked and there: only a trigger of the table can have undone this.
    EXECUTE format('SELECT EXISTS (SELECT FROM %s AS t WHERE %s AND %s AND t.%I = 0 AND t.%I)',
      own, t_in_chain, t_is_live, number, flag) INTO holds USING given;
    IF length = 0 OR NOT holds THEN
      RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = index_name, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
        MESSAGE = 'a trigger of the table undoes what the guard does to a chain',
        HINT = 'The trigger must keep hash, hash number and flag as they are, and let their UPDATE pass.';
    END IF;
    -- What is promoted was proved when it came. Equal texts from a time without the guard must not keep each other from
    -- being deleted.
    CONTINUE WHEN way = 1 AND lowest > 0;
    -- This statement may have put a text at 0 past every proof, or a trigger may have changed a text after the proof.
    -- Compared by number: an old snapshot can show two rows at one number, of which one is gone.
    EXECUTE format('SELECT EXISTS (SELECT FROM %1$s AS s JOIN %1$s AS t ON %2$s AND %3$s AND t.%4$I <> s.%4$I AND %5$s
        WHERE %6$s AND %7$s AND s.%4$I = ANY (ARRAY[0, ($1).%4$I]))',
      own, t_in_chain, t_is_live, number, s_has_text_of_t, s_in_chain, s_is_live) INTO holds USING given;
    IF holds THEN
      RAISE EXCEPTION USING ERRCODE = '23505', CONSTRAINT = index_name, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
        MESSAGE = format('duplicate key value violates unique constraint %I', index_name),
        HINT = 'The text, or another of its hash, is stored twice: run the doctor.';
    END IF;
  END LOOP;
  RETURN NULL;
END
$chain$
$code$;
COMMENT ON FUNCTION "unique_text_chain_code_v1"() IS
  'typeorm-unique-text: the code of the trigger function that keeps chains.';

CREATE FUNCTION "unique_text_code_v1"(on_table pg_catalog.regclass, declared pg_catalog.jsonb, chain pg_catalog.text)
RETURNS pg_catalog.jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
-- PL/pgSQL reserves words that quote_ident leaves as they are otherwise, such as by and begin.
SET quote_all_identifiers = on AS $code$
-- Returns the functions and triggers of a text, for unique_text_create_v1, and for unique_text_number_rows_v1:
--   hashed        the hash of the row NEW as SQL
DECLARE
  home name;
  table_name name;
  declaration jsonb;
  property CONSTANT text := declared->>'name';
  types CONSTANT jsonb := '{"name": "string", "text": "array", "index": "string", "check": "string", "scope": "array",
    "hash": "string", "number": "string", "chained": "string", "prefixes": "array", "digest": "string",
    "hashed": "string", "normalizers": "array", "nullable": "boolean", "immutable": "boolean", "deleted": "string",
    "spread": "boolean", "maxChainLength": "number", "guard": "string", "kind": "string", "protocol": "number",
    "serves": "number", "on": "array", "triggers": "array", "bodies": "string"}';
  wrong text;
  guard text;
  hash text;
  number text;
  flag text;
  deleted text;
  texts text[];
  prefixes text[];
  scopes text[];
  columns text;
  hashed text;
  -- Conditions in the functions and triggers.
  one_text text;
  same_text text;
  same_scope text;
  no_text text;
  had_no_text text;
  taken_text text;
  in_chain text;
  parts text[];
BEGIN
  -- An option that is misspelled, or "true" as a string, would be ignored.
  SELECT e.key INTO wrong FROM jsonb_each(declared) AS e
    WHERE jsonb_typeof(e.value) IS DISTINCT FROM (types->>e.key) OR e.key = 'kind' AND e.value <> '"text"'
      OR e.key = 'text' AND e.value = '[]' OR e.key = 'maxChainLength'
        AND (e.value::text !~ '^[1-9][0-9]{0,9}$' OR e.value > '2147483647') LIMIT 1;
  IF current_setting('server_encoding') <> 'UTF8' THEN
    RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'the encoding of the database must be UTF8';
  ELSIF property IS NULL OR declared->>'index' IS NULL OR jsonb_typeof(declared->'text') IS DISTINCT FROM 'array' THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'a declaration has the keys name, text and index',
      HINT = 'For instance {"name": "url", "text": ["url"], "index": "page_url"}.';
  ELSIF declared->>'hashed' IS NULL AND coalesce(declared->>'digest', 'md5') NOT IN ('md5', 'sha256') THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('the digest "%s" is not known', declared->>'digest'),
      HINT = 'The key hashed has the SQL of another digest than md5 and sha256.';
  ELSIF wrong IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('a declaration has no such key or value: %s', wrong);
  END IF;
  -- The triggers lock the table like this. Locked first, it shows its owner, and what another attach has committed.
  EXECUTE format('LOCK TABLE ONLY %s IN SHARE ROW EXCLUSIVE MODE', on_table);
  SELECT n.nspname, c.relname INTO home, table_name
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = on_table;
  declaration := jsonb_build_object('kind', 'text', 'protocol', 1, 'scope', '[]'::jsonb, 'hash', property || 'Hash',
    'number', property || 'HashNumber', 'chained', property || 'HashChained') || declared;
  guard := coalesce(declared->>'guard', format('unique_text_%s__%s', table_name, property));
  IF octet_length(guard) > 49 THEN
    -- Names have 63 bytes, and the longest end of one has 14.
    guard := concat('unique_text_', md5(guard));
  END IF;
  hash := quote_ident(declaration->>'hash');
  number := quote_ident(declaration->>'number');
  flag := quote_ident(declaration->>'chained');
  deleted := quote_ident(declaration->>'deleted');
  texts := ARRAY(SELECT quote_ident(c) FROM jsonb_array_elements_text(declaration->'text') AS c);
  scopes := ARRAY(SELECT quote_ident(c) FROM jsonb_array_elements_text(declaration->'scope') AS c);
  -- The chain function reads the columns from a trigger, in this order.
  columns := array_to_string(texts || scopes || ARRAY[hash, number, flag, deleted], ', ');
  -- What is hashed: one column, or several with their prefixes, or each with the number of its bytes.
  prefixes := ARRAY(SELECT coalesce(declaration->'prefixes'->>(position - 1), '')
    FROM generate_subscripts(texts, 1) AS position);
  SELECT string_agg(format(CASE
      WHEN cardinality(texts) = 1 AND prefix = '' THEN 'NEW.%s::text'
      WHEN '' = ANY (prefixes[2:]) THEN 'coalesce(octet_length(NEW.%1$s::text)::text || '':'' || NEW.%1$s::text, ''-'')'
      ELSE 'coalesce(%2$L || NEW.%1$s::text, '''')' END, c, prefix), ' || ')
    INTO hashed FROM unnest(texts, prefixes) AS p (c, prefix);
  hashed := coalesce(declaration->>'hashed', format(CASE declaration->>'digest'
      WHEN 'sha256' THEN 'sha256(convert_to(%s, ''UTF8''))' ELSE 'md5(%s)::uuid' END, hashed));
  -- Bytewise, because a nondeterministic collation equates different texts.
  one_text := '%2$s.%1$s::text COLLATE "C" = NEW.%1$s::text';
  IF declaration->'nullable' = 'true' OR cardinality(texts) > 1 THEN
    one_text := format('(%s OR %%2$s.%%1$s IS NULL AND NEW.%%1$s IS NULL)', one_text);
  END IF;
  SELECT string_agg(format(one_text, c, 'OLD'), ' AND '), string_agg(format(one_text, c, 't'), ' AND '),
      string_agg(format('NEW.%s IS NULL', c), ' AND '), string_agg(format('OLD.%s IS NULL', c), ' AND ')
    INTO same_text, taken_text, no_text, had_no_text FROM unnest(texts) AS c;
  SELECT coalesce(string_agg(format('OLD.%1$s = NEW.%1$s', c), ' AND '), 'true'),
      concat(string_agg(format('t.%1$s = NEW.%1$s AND ', c), ''), format('t.%1$s = NEW.%1$s', hash))
    INTO same_scope, in_chain FROM unnest(scopes) AS c;

  -- The trigger function of this text. It makes the hash, and gives number 0 in an empty chain, which is
  -- enough for practically every row. Otherwise it sets -1, which the check refuses, and the chain function goes on.
  parts := ARRAY[format($part$
DECLARE
  -- False in a partition, in a shard and after a rename. The chain function finds every number there.
  plain CONSTANT boolean := TG_TABLE_SCHEMA = %L AND TG_TABLE_NAME = %L;
  taken boolean;
BEGIN
  IF plain THEN
  ELSIF NOT EXISTS (SELECT FROM pg_type AS y WHERE y.oid = format('%%I.%%I', TG_TABLE_SCHEMA, TG_TABLE_NAME)::regtype
      AND pg_get_userbyid(y.typowner) = CURRENT_USER) THEN
    RAISE EXCEPTION USING ERRCODE = '55000', CONSTRAINT = %L, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
      MESSAGE = 'the guard does not belong to the owner of the table: a new migration creates it again',
      HINT = 'In SQL, unique_text_detach_v1 and then unique_text_attach_v1 create it again.';
  END IF;$part$, home, table_name, declaration->>'index'), format($part$
  -- An unchanged text keeps its number, unless a promotion sets that to 0. No UPDATE clears the flag.
  IF TG_OP = 'UPDATE' AND %1$s AND %2$s%3$s THEN
    NEW.%4$s := OLD.%4$s;
    NEW.%5$s := CASE WHEN NEW.%5$s = 0 THEN 0 ELSE OLD.%5$s END;
    NEW.%6$s := OLD.%6$s OR NEW.%6$s IS TRUE;
    RETURN NEW;
  END IF;$part$, same_scope, same_text, ' AND (OLD.' || deleted || ' IS NULL OR NEW.' || deleted || ' IS NOT NULL)',
    hash, number, flag)];
  IF declaration->'immutable' = 'true' THEN
    parts := parts || format($part$
  IF TG_OP = 'UPDATE' AND NOT (%s) AND (%s AND %s) IS NOT TRUE THEN
    RAISE EXCEPTION USING ERRCODE = 'UT001', CONSTRAINT = %L, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
      MESSAGE = 'the text is immutable';
  END IF;$part$, had_no_text, same_scope, same_text, declaration->>'index');
  END IF;
  IF declaration->'nullable' = 'true' THEN
    parts := parts || format($part$
  IF %s THEN
    NEW.%s := NULL;
    NEW.%s := 0;
    NEW.%s := false;
    RETURN NEW;
  END IF;$part$, no_text, hash, number, flag);
  END IF;
  IF declaration->'spread' = 'true' THEN
    -- The hash has decided which partition or shard holds the row.
    parts := parts || format($part$
  IF (NEW.%1$s = %2$s) IS NOT TRUE THEN
    RAISE EXCEPTION USING ERRCODE = '23514', CONSTRAINT = %3$L, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
      MESSAGE = 'the hash is not that of the text', HINT = %4$L;
  END IF;$part$, hash, hashed, declaration->>'check',
      format('The table is spread by %s: send it, made of the text as the check has it.', hash));
  ELSE
    parts := parts || format($part$
  NEW.%s := %s;$part$, hash, hashed);
  END IF;
  parts := parts || format($part$
  NEW.%s := -1;
  NEW.%s := false;$part$, number, flag);
  IF deleted IS NOT NULL THEN
    -- A row that is deleted softly is in no chain. When it is restored, it gets a number that is free then.
    parts := parts || format($part$
  IF NEW.%s IS NOT NULL THEN
    NEW.%s := 0;
    RETURN NEW;
  END IF;$part$, deleted, number);
  END IF;
  parts := parts || format($part$
  IF plain THEN
    -- Of a text that is at 0, the index raises the ordinary violation.
    SELECT t.%1$s = 0 AND %2$s INTO taken FROM ONLY %3$s AS t WHERE %4$s%5$s LIMIT 1;
    IF NOT FOUND OR taken AND TG_OP = 'INSERT' THEN
      NEW.%1$s := 0;
    END IF;
  END IF;
  RETURN NEW;
END
$part$, number, taken_text, on_table, in_chain, ' AND t.' || deleted || ' IS NULL');

  -- The conditions are short, because Postgres prepares them for every statement. Triggers fire in the order of names.
  -- Settle is AFTER, because a BEFORE trigger would make an UPDATE of several rows of a chain fail with 27000.
  -- settle_update names no columns, because a user's BEFORE trigger may change some that the statement does not name.
  RETURN jsonb_build_object('declaration', declaration, 'guard', guard, 'main', 23, 'hashed', hashed,
    'functions', jsonb_build_array(
      jsonb_build_object('name', guard, 'body', array_to_string(parts, '')),
      jsonb_build_object('name', 'unique_text_chain_v1', 'body', chain, 'shared', true)),
    'triggers', (SELECT jsonb_agg(v) FROM (VALUES
      (7, '_place_insert', 1, format('BEFORE INSERT ON %s FOR EACH ROW
        WHEN (NEW.%s IS NULL OR (NEW.%s = 0) IS NOT TRUE OR NEW.%s)', on_table, hash, number, flag)),
      (19, '_place_update', 1, format('BEFORE UPDATE OF %1$s ON %2$s FOR EACH ROW WHEN ((%3$s) IS NOT TRUE
        OR (%4$s) IS NOT TRUE OR (OLD.%5$s = NEW.%5$s) IS NOT TRUE OR (OLD.%6$s = NEW.%6$s) IS NOT TRUE
        OR OLD.%7$s AND NEW.%7$s IS NOT TRUE%8$s)', columns, on_table, same_text, same_scope, hash, number, flag,
        ' OR OLD.' || deleted || ' IS NOT NULL AND NEW.' || deleted || ' IS NULL')),
      (23, '_rest', 2, format('BEFORE INSERT OR UPDATE OF %s ON %s FOR EACH ROW
        WHEN (NEW.%s < 0)', columns, on_table, number)),
      (5, '_settle_insert', 2, format('AFTER INSERT ON %s FOR EACH ROW WHEN (NEW.%s > 0)', on_table, number)),
      (17, '_settle_update', 2, format('AFTER UPDATE ON %s FOR EACH ROW
        WHEN (OLD.%s OR NEW.%2$s OR NEW.%s > 0)', on_table, flag, number)),
      (9, '_settle_delete', 2, format('AFTER DELETE ON %s FOR EACH ROW WHEN (OLD.%s)', on_table, flag))
    ) AS v (type, suffix, runs, fires)));
END
$code$;
COMMENT ON FUNCTION "unique_text_code_v1"(pg_catalog.regclass, pg_catalog.jsonb, pg_catalog.text) IS
  'typeorm-unique-text: the functions and triggers that unique_text_attach_v1 makes.';

CREATE FUNCTION "unique_text_attach_v1"(on_table pg_catalog.regclass, declared pg_catalog.jsonb)
RETURNS pg_catalog.void LANGUAGE sql SET search_path = pg_catalog, pg_temp
RETURN "unique_text_clean_v1"(on_table, "unique_text_create_v1"(on_table,
  "unique_text_code_v1"(on_table, declared, "unique_text_chain_code_v1"())));
COMMENT ON FUNCTION "unique_text_attach_v1"(pg_catalog.regclass, pg_catalog.jsonb) IS
  'typeorm-unique-text: keeps a text of a table unique by triggers. unique_text_detach_v1 removes them.';

-- Columns, index and check remain. Returns whether there were any triggers.
CREATE FUNCTION "unique_text_detach_v1"(on_table pg_catalog.regclass, property pg_catalog.text)
RETURNS pg_catalog.bool LANGUAGE sql SET search_path = pg_catalog, pg_temp
RETURN "unique_text_clean_v1"(on_table, "unique_text_drop_v1"(on_table, 'text'::pg_catalog.text, property));
COMMENT ON FUNCTION "unique_text_detach_v1"(pg_catalog.regclass, pg_catalog.text) IS
  'typeorm-unique-text: removes what unique_text_attach_v1 made for a text. Its columns, index and check remain.';
`)
    await queryRunner.query(`-- typeorm-unique-text: the parts of a URL, version 1. A check of the table of Url calls this function.
--
--   CONSTRAINT url_parts_check CHECK (unique_text_is_url_v1(scheme, host, port, path, query, fragment))
--
-- Each URL has one spelling, which parseUrl gives. The function refuses all others, so that one URL is not in two rows.
-- It is PL/pgSQL, because each statement that writes a row would compile a longer check anew.

CREATE FUNCTION "unique_text_is_url_v1"(scheme pg_catalog.text, host pg_catalog.text, port pg_catalog.int4,
  path pg_catalog.text, query pg_catalog.text, fragment pg_catalog.text)
RETURNS pg_catalog.bool LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $url$
-- Returns false for parts that no URL has, and true or NULL for others. In other collations than "C", a range of
-- characters is not a range.
DECLARE
  -- Percent-encoding with another spelling: digits in lower case, and unreserved characters. A hex digit remains
  -- encoded if a % before it would otherwise begin another triplet.
  triplet CONSTANT text := '%([0-9A-F][a-f]|[a-f][0-9A-Fa-f]|2[DE]|[46][7-9A-F]|5[0-9AF]|7[0-9AE])'
    || '|(?<!%[0-9A-Fa-f]?)%(3[0-9]|[46][1-6])';
BEGIN
  RETURN port BETWEEN 0 AND 65535
    -- The default is 0.
    AND CASE scheme COLLATE "C" WHEN 'http' THEN port <> 80 WHEN 'https' THEN port <> 443 ELSE false END
    AND CASE
      WHEN host COLLATE "C" ~ '^([0-9a-z-]+[.])*[a-z][0-9a-z-]*$' THEN true
      -- IPv6: as Postgres writes it, without leading zeros and without the first of the longest runs of zeros.
      -- Postgres would write some with the dots of IPv4.
      WHEN host COLLATE "C" ~ '^[[][0-9a-f:]+[]]$' THEN host COLLATE "C" ~ (
          '^[[]::([1-9a-f][0-9a-f]{0,3}|([1-9a-f][0-9a-f]{0,3}|ffff:(0|[1-9a-f][0-9a-f]{0,3}))'
          || ':(0|[1-9a-f][0-9a-f]{0,3}))[]]$')
        OR host COLLATE "C" = concat('[', host(btrim(host, '[]')::inet), ']')
      -- A host whose last label is a number is an IPv4 address, which has one spelling: 127.1 is 127.0.0.1.
      WHEN host COLLATE "C" ~ '(^|[.])([0-9]+|0x[0-9a-f]*)[.]?$' THEN host COLLATE "C" ~
        '^((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])[.]){3}(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])$'
      ELSE host COLLATE "C" ~ '^[!"&-.0-9;=_-z{}~$]+$' END
    AND path COLLATE "C" ~ '^/[]!$-;=@-[_a-z|~]*$' AND path COLLATE "C" !~ '/[.][.]?(/|$)'
    AND query COLLATE "C" ~ '^[!$-&(-;=?-~]*$' AND fragment COLLATE "C" ~ '^[!#-;=?-_a-~]*$'
    -- A lookbehind is slow, and most parts have no %.
    AND (strpos(path COLLATE "C", '%') = 0 OR path COLLATE "C" !~ triplet)
    AND (strpos(query COLLATE "C", '%') = 0 OR query COLLATE "C" !~ triplet)
    AND (strpos(fragment COLLATE "C", '%') = 0 OR fragment COLLATE "C" !~ triplet);
END
$url$;
COMMENT ON FUNCTION "unique_text_is_url_v1"(pg_catalog.text, pg_catalog.text, pg_catalog.int4, pg_catalog.text,
  pg_catalog.text, pg_catalog.text) IS 'typeorm-unique-text: whether these are the parts of a URL in its one spelling.';
-- The check runs as whoever writes a row, whatever default privileges revoke.
GRANT EXECUTE ON FUNCTION "unique_text_is_url_v1"(pg_catalog.text, pg_catalog.text, pg_catalog.int4, pg_catalog.text,
  pg_catalog.text, pg_catalog.text) TO PUBLIC;
`)
    await queryRunner.query(
      `CREATE TABLE "urls" ("id" bigint GENERATED BY DEFAULT AS IDENTITY NOT NULL, "scheme" character varying(5) NOT NULL, "host" character varying(256) NOT NULL, "port" integer NOT NULL DEFAULT '0', "path" text NOT NULL, "query" text, "fragment" text, "path_component_hash" uuid NOT NULL, "hash_number" integer NOT NULL DEFAULT '0', "hash_chained" boolean NOT NULL DEFAULT false, CONSTRAINT "url_parts_check" CHECK ("unique_text_is_url_v1"("scheme"::pg_catalog.text, "host"::pg_catalog.text, "port", "path", "query", "fragment")), CONSTRAINT "CHK_e654ed1189ac9a7a656246a074" CHECK ("path_component_hash" OPERATOR(pg_catalog.=) pg_catalog.md5(coalesce("path"::pg_catalog.text, '') OPERATOR(pg_catalog.||) coalesce('?' OPERATOR(pg_catalog.||) "query"::pg_catalog.text, '') OPERATOR(pg_catalog.||) coalesce('#' OPERATOR(pg_catalog.||) "fragment"::pg_catalog.text, ''))::pg_catalog.uuid AND "hash_number" OPERATOR(pg_catalog.>=) 0), CONSTRAINT "PK_eaf7bec915960b26aa4988d73b0" PRIMARY KEY ("id")); COMMENT ON COLUMN "urls"."path_component_hash" IS 'typeorm-unique-text: hash of "url"; do not write it.'; COMMENT ON COLUMN "urls"."hash_number" IS 'typeorm-unique-text: 0, or 1 and more where another "url" has the same hash; do not write it.'; COMMENT ON COLUMN "urls"."hash_chained" IS 'typeorm-unique-text: others have, or had, the same hash of "url"; do not write it.'`,
    )
    await queryRunner.query(
      `CREATE UNIQUE INDEX "url_unique_index" ON "urls"  ("host", "scheme", "port", "path_component_hash", "hash_number") `,
    )
    await queryRunner.query(
      `SELECT "unique_text_attach_v1"('"urls"'::pg_catalog.regclass, '{"name":"url","text":["path","query","fragment"],"prefixes":["","?","#"],"scope":["host","scheme","port"],"hash":"path_component_hash","number":"hash_number","chained":"hash_chained","index":"url_unique_index","check":"CHK_e654ed1189ac9a7a656246a074","immutable":true}'::pg_catalog.jsonb)`,
    )
  }

  public async down(queryRunner: QueryRunner): Promise<void> {
    await queryRunner.query(`SELECT "unique_text_detach_v1"('"urls"'::pg_catalog.regclass, 'url'::pg_catalog.text)`)
    await queryRunner.query(`DROP INDEX "public"."url_unique_index"`)
    await queryRunner.query(`DROP TABLE "urls"`)
    await queryRunner.query(`DROP FUNCTION unique_text_is_url_v1(pg_catalog.text, pg_catalog.text, pg_catalog.int4,
  pg_catalog.text, pg_catalog.text, pg_catalog.text)`)
    await queryRunner.query(`DROP FUNCTION unique_text_chain_code_v1(),
  unique_text_code_v1(pg_catalog.regclass, pg_catalog.jsonb, pg_catalog.text),
  unique_text_attach_v1(pg_catalog.regclass, pg_catalog.jsonb),
  unique_text_detach_v1(pg_catalog.regclass, pg_catalog.text)`)
    await queryRunner.query(`DROP FUNCTION unique_text_create_v1(pg_catalog.regclass, pg_catalog.jsonb),
  unique_text_drop_v1(pg_catalog.regclass, pg_catalog.text, pg_catalog.text),
  unique_text_clean_v1(pg_catalog.regclass, pg_catalog.jsonb)`)
    await queryRunner.query(`DROP FUNCTION unique_text_report_v1()`)
  }
}
