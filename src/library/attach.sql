-- typeorm-unique-text: how functions and triggers are made and dropped, version 1. It serves all kinds.
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
