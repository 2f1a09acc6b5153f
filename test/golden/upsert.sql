WITH found AS (
  SELECT NULL::boolean AS created, t."urlHashNumber" AS hash_number,
    NULL::pg_catalog.text AS other_texts, t."id" AS s0, t."title" AS s2
  FROM "page" AS t
  WHERE t."urlHash" OPERATOR(pg_catalog.=) $2
    AND t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $1::pg_catalog.text
    AND t."urlHashNumber" OPERATOR(pg_catalog.>=) -2147483648
    AND t."urlHashNumber" OPERATOR(pg_catalog.<=) 2147483647
  LIMIT 2
  FOR NO KEY UPDATE
), updated AS (
  UPDATE "page" AS t
  SET "title" = $3,
    "changed" = CURRENT_TIMESTAMP,
    "version" = t."version" OPERATOR(pg_catalog.+) 1
  FROM (SELECT FROM found HAVING pg_catalog.count(*) OPERATOR(pg_catalog.=) 1) AS f
  WHERE t."urlHash" OPERATOR(pg_catalog.=) $2
    AND t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $1::pg_catalog.text
    AND t."urlHashNumber" OPERATOR(pg_catalog.>=) -2147483648
    AND t."urlHashNumber" OPERATOR(pg_catalog.<=) 2147483647
  RETURNING NULL::boolean AS created, t."urlHashNumber" AS hash_number,
    CASE WHEN (t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $1::pg_catalog.text
      OR t."url"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND $1::pg_catalog.text IS NULL) IS NOT TRUE
    THEN pg_catalog.json_build_array(t."url")::pg_catalog.text END AS other_texts, t."id" AS s0, t."title" AS s2
), created AS (
  INSERT INTO "page" AS t ("url", "urlHash", "title")
  SELECT $1, $2, $3
  WHERE NOT EXISTS (SELECT FROM found)
  ON CONFLICT DO NOTHING
  RETURNING true AS created, t."urlHashNumber" AS hash_number,
    CASE WHEN (t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $1::pg_catalog.text
      OR t."url"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND $1::pg_catalog.text IS NULL) IS NOT TRUE
    THEN pg_catalog.json_build_array(t."url")::pg_catalog.text END AS other_texts, t."id" AS s0, t."title" AS s2
)
SELECT * FROM updated
UNION ALL
SELECT * FROM created
UNION ALL
-- Locked, and yet not updated: it is as it should be, or a trigger of the table keeps it as it is.
SELECT * FROM found WHERE NOT EXISTS (SELECT FROM updated);

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
  LIMIT 2
  FOR NO KEY UPDATE
), updated AS (
  UPDATE "My ""Schema"""."page" AS t
  SET "title" = $5,
    "changed" = CURRENT_TIMESTAMP,
    "version" = t."version" OPERATOR(pg_catalog.+) 1
  FROM (SELECT FROM found HAVING pg_catalog.count(*) OPERATOR(pg_catalog.=) 1) AS f
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
  RETURNING NULL::boolean AS created, t."urlHashNumber" AS hash_number,
    CASE WHEN (t."path"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $2::pg_catalog.text
      OR t."path"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND $2::pg_catalog.text IS NULL) IS NOT TRUE
      OR (t."query"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $3::pg_catalog.text
      OR t."query"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND $3::pg_catalog.text IS NULL) IS NOT TRUE
    THEN pg_catalog.json_build_array(t."path", t."query")::pg_catalog.text END AS other_texts, t."id" AS s0
), created AS (
  INSERT INTO "My ""Schema"""."page" AS t ("site", "path", "query", "urlHash", "title")
  SELECT $1, $2, $3, $4, $5
  WHERE NOT EXISTS (SELECT FROM found)
  ON CONFLICT DO NOTHING
  RETURNING true AS created, t."urlHashNumber" AS hash_number,
    CASE WHEN (t."path"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $2::pg_catalog.text
      OR t."path"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND $2::pg_catalog.text IS NULL) IS NOT TRUE
      OR (t."query"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $3::pg_catalog.text
      OR t."query"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND $3::pg_catalog.text IS NULL) IS NOT TRUE
    THEN pg_catalog.json_build_array(t."path", t."query")::pg_catalog.text END AS other_texts, t."id" AS s0
)
SELECT * FROM updated
UNION ALL
SELECT * FROM created
UNION ALL
-- Locked, and yet not updated: it is as it should be, or a trigger of the table keeps it as it is.
SELECT * FROM found WHERE NOT EXISTS (SELECT FROM updated);
