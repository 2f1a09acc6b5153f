UPDATE "comment" AS t SET "number" = n."number"
FROM (
  SELECT r."id" AS "key 0", r."part" AS "key 1",
    coalesce(pg_catalog.max(r."number") OVER (PARTITION BY r."tenant"), 0)
      OPERATOR(pg_catalog.+) pg_catalog.count(*) FILTER (WHERE r."number" IS NULL) OVER (
        PARTITION BY r."tenant" ORDER BY r."id", r."part" ROWS UNBOUNDED PRECEDING
      ) AS "number"
  FROM "comment" AS r
) AS n
WHERE t."id" OPERATOR(pg_catalog.=) n."key 0"
  AND t."part" OPERATOR(pg_catalog.=) n."key 1"
  AND t."number" IS NULL;

UPDATE "comment" AS t SET "number" = n."number"
FROM (
  SELECT r."id" AS "key 0", r."part" AS "key 1", pg_catalog.row_number() OVER (
    PARTITION BY r."tenant" ORDER BY r."id", r."part"
  ) AS "number"
  FROM "comment" AS r
) AS n
WHERE t."id" OPERATOR(pg_catalog.=) n."key 0"
  AND t."part" OPERATOR(pg_catalog.=) n."key 1"
  AND (t."number" OPERATOR(pg_catalog.=) n."number") IS NOT TRUE;

DO $guard$
DECLARE
  privilege pg_catalog.text;
BEGIN
  LOCK TABLE "comment" IN SHARE ROW EXCLUSIVE MODE;
  IF EXISTS (
    SELECT FROM pg_catalog.pg_class AS c LEFT JOIN pg_catalog.pg_inherits AS h
      ON h.inhrelid OPERATOR(pg_catalog.=) c.oid OR h.inhparent OPERATOR(pg_catalog.=) c.oid
    WHERE c.oid OPERATOR(pg_catalog.=) '"comment"'::pg_catalog.regclass AND (c.relkind OPERATOR(pg_catalog.=) 'p' OR h.inhrelid IS NOT NULL)
  ) THEN
    RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'a table with partitions, or with children by INHERITS, keeps no count',
      HINT = 'Declare @NumberWithin without "count", and count the rows by SQL.';
  END IF;
  DROP TABLE IF EXISTS "numbers_comment__number_scopes";
  CREATE TABLE "numbers_comment__number_scopes" WITH (fillfactor = 50) AS
    SELECT r."tenant" AS s0, 0::pg_catalog.int2 AS part, pg_catalog.count(*) FILTER (WHERE r."deletedAt" IS NULL) AS n
    FROM ONLY "comment" AS r GROUP BY r."tenant";
  ALTER TABLE "numbers_comment__number_scopes" ADD PRIMARY KEY (s0, part);
  CREATE TRIGGER restore_with_disable_triggers BEFORE INSERT ON "numbers_comment__number_scopes" FOR EACH ROW
    WHEN (pg_catalog.pg_trigger_depth() OPERATOR(pg_catalog.=) 0 AND NEW.n OPERATOR(pg_catalog.<>) 0)
    EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger();
  -- Whatever default privileges have granted.
  FOR privilege IN
    SELECT pg_catalog.format('REVOKE ALL ON %s FROM %s', k.oid::pg_catalog.regclass,
        CASE WHEN a.grantee OPERATOR(pg_catalog.=) 0 THEN 'PUBLIC' ELSE a.grantee::pg_catalog.regrole::pg_catalog.text END)
      FROM pg_catalog.pg_class AS k, pg_catalog.aclexplode(k.relacl) AS a
     WHERE k.oid OPERATOR(pg_catalog.=) '"numbers_comment__number_scopes"'::pg_catalog.regclass AND a.grantee OPERATOR(pg_catalog.<>) k.relowner
    UNION ALL
    SELECT pg_catalog.format('ALTER TABLE %s OWNER TO %s', '"numbers_comment__number_scopes"', c.relowner::pg_catalog.regrole)
      FROM pg_catalog.pg_class AS c WHERE c.oid OPERATOR(pg_catalog.=) '"comment"'::pg_catalog.regclass
    UNION ALL
    SELECT pg_catalog.format('GRANT SELECT ON %s TO %s', '"numbers_comment__number_scopes"',
        CASE WHEN a.grantee OPERATOR(pg_catalog.=) 0 THEN 'PUBLIC' ELSE a.grantee::pg_catalog.regrole::pg_catalog.text END)
      FROM pg_catalog.pg_class AS c, pg_catalog.aclexplode(c.relacl) AS a
     WHERE c.oid OPERATOR(pg_catalog.=) '"comment"'::pg_catalog.regclass AND a.privilege_type OPERATOR(pg_catalog.=) 'SELECT'
       AND a.grantee OPERATOR(pg_catalog.<>) c.relowner
  LOOP
    EXECUTE privilege;
  END LOOP;
END
$guard$