UPDATE "comment" AS t SET "number" = n."number"
FROM (
  SELECT r."id" AS "key 0", r."part" AS "key 1", r."number" AS "given",
    coalesce(pg_catalog.max(r."number") OVER (PARTITION BY r."tenant"), 0)
      + pg_catalog.count(*) FILTER (WHERE r."number" IS NULL) OVER (
        PARTITION BY r."tenant" ORDER BY r."id", r."part" ROWS UNBOUNDED PRECEDING
      ) AS "number"
  FROM "comment" AS r
) AS n
WHERE t."id" = n."key 0"
  AND t."part" = n."key 1"
  AND t."number" IS NULL;

UPDATE "comment" AS t SET "number" = n."number"
FROM (
  SELECT r."id" AS "key 0", r."part" AS "key 1", pg_catalog.row_number() OVER (
    PARTITION BY r."tenant" ORDER BY r."id", r."part"
  ) AS "number"
  FROM "comment" AS r
) AS n
WHERE t."id" = n."key 0"
  AND t."part" = n."key 1"
  AND t."number" IS DISTINCT FROM n."number";

UPDATE "comment" SET "number count" = NULL WHERE "number count" IS NOT NULL;

UPDATE "comment" AS t SET "number count" = n."rows"
FROM (
  SELECT r."tenant", pg_catalog.min(r."number") AS "oldest",
    pg_catalog.count(*) FILTER (WHERE r."deletedAt" IS NULL) AS "rows"
  FROM "comment" AS r GROUP BY r."tenant"
) AS n
WHERE t."tenant" OPERATOR(pg_catalog.=) n."tenant"
  AND t."number" = n."oldest"