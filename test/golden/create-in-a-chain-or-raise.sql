INSERT INTO "page" AS t ("url", "urlHash", "title", "urlHashNumber")
VALUES ($1, $2, $3, NULL)
RETURNING true AS created, t."urlHashNumber" AS hash_number,
    CASE WHEN (t."url"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $1::pg_catalog.text
      OR t."url"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND $1::pg_catalog.text IS NULL) IS NOT TRUE
    THEN pg_catalog.json_build_array(t."url")::pg_catalog.text END AS other_texts, t."id" AS s0, t."title" AS s2;

INSERT INTO "My ""Schema"""."page" AS t ("site", "path", "query", "urlHash", "urlHashNumber")
VALUES ($1, $2, $3, $4, NULL)
RETURNING true AS created, t."urlHashNumber" AS hash_number,
    CASE WHEN (t."path"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $2::pg_catalog.text
      OR t."path"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND $2::pg_catalog.text IS NULL) IS NOT TRUE
      OR (t."query"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $3::pg_catalog.text
      OR t."query"::pg_catalog.text COLLATE pg_catalog."C" IS NULL
        AND $3::pg_catalog.text IS NULL) IS NOT TRUE
    THEN pg_catalog.json_build_array(t."path", t."query")::pg_catalog.text END AS other_texts, t."id" AS s0;
