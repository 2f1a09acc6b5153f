INSERT INTO "page" AS t ("url", "urlHash", "title", "urlHashNumber")
VALUES ($1, $2, $3, NULL)
ON CONFLICT DO NOTHING
RETURNING true AS created, t."urlHashNumber" AS hash_number,
    CASE WHEN t."url"::pg_catalog.text COLLATE "C" IS DISTINCT FROM $1::pg_catalog.text
    THEN pg_catalog.json_build_array(t."url")::pg_catalog.text END AS other_texts, t."id" AS s0, t."title" AS s2;

INSERT INTO "My ""Schema"""."page" AS t ("site", "path", "query", "urlHash", "urlHashNumber")
VALUES ($1, $2, $3, $4, NULL)
ON CONFLICT DO NOTHING
RETURNING true AS created, t."urlHashNumber" AS hash_number,
    CASE WHEN t."path"::pg_catalog.text COLLATE "C" IS DISTINCT FROM $2::pg_catalog.text
      OR t."query"::pg_catalog.text COLLATE "C" IS DISTINCT FROM $3::pg_catalog.text
    THEN pg_catalog.json_build_array(t."path", t."query")::pg_catalog.text END AS other_texts, t."id" AS s0;
