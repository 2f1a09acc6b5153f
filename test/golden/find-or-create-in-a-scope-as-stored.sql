WITH found AS (
  SELECT NULL::boolean AS created, t."urlHashNumber" AS hash_number,
    NULL::pg_catalog.text AS other_texts, t."id" AS s0, t."title" AS s2
  FROM "page" AS t
  WHERE t."urlHash" OPERATOR(pg_catalog.=) $2
    AND t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $1::pg_catalog.text
    AND t."urlHashNumber" OPERATOR(pg_catalog.>=) -2147483648
    AND t."urlHashNumber" OPERATOR(pg_catalog.<=) 2147483647
), created AS (
  INSERT INTO "page" AS t ("url", "urlHash", "title")
  SELECT $1, $2, $3
  WHERE NOT EXISTS (SELECT FROM found)
  ON CONFLICT ("urlHash", "urlHashNumber") DO NOTHING
  RETURNING true AS created, t."urlHashNumber" AS hash_number,
    CASE WHEN (t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $1::pg_catalog.text
      OR t."url"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND $1::pg_catalog.text IS NULL) IS NOT TRUE
    THEN pg_catalog.json_build_array(t."url")::pg_catalog.text END AS other_texts, t."id" AS s0, t."title" AS s2
)
SELECT * FROM found
UNION ALL
SELECT * FROM created;

WITH found AS (
  SELECT NULL::boolean AS created, t."urlHashNumber" AS hash_number,
    NULL::pg_catalog.text AS other_texts, t."id" AS s0
  FROM "My ""Schema"""."page" AS t
  WHERE t."site" OPERATOR(pg_catalog.=) pg_catalog.round($1::numeric, 2)
    AND t."urlHash" OPERATOR(pg_catalog.=) $4
    AND (t."path"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $2::pg_catalog.text
      OR t."path"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND $2::pg_catalog.text IS NULL)
    AND (t."query"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $3::pg_catalog.text
      OR t."query"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND $3::pg_catalog.text IS NULL)
    AND t."urlHashNumber" OPERATOR(pg_catalog.>=) -2147483648
    AND t."urlHashNumber" OPERATOR(pg_catalog.<=) 2147483647
), created AS (
  INSERT INTO "My ""Schema"""."page" AS t ("site", "path", "query", "urlHash")
  SELECT $1, $2, $3, $4
  WHERE NOT EXISTS (SELECT FROM found)
  ON CONFLICT ("site", "urlHash", "urlHashNumber") DO NOTHING
  RETURNING true AS created, t."urlHashNumber" AS hash_number,
    CASE WHEN (t."path"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $2::pg_catalog.text
      OR t."path"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND $2::pg_catalog.text IS NULL) IS NOT TRUE
      OR (t."query"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $3::pg_catalog.text
      OR t."query"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND $3::pg_catalog.text IS NULL) IS NOT TRUE
    THEN pg_catalog.json_build_array(t."path", t."query")::pg_catalog.text END AS other_texts, t."id" AS s0
)
SELECT * FROM found
UNION ALL
SELECT * FROM created;
