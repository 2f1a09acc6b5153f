import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import fastify, { type FastifyInstance } from 'fastify'
import { type DataSource, MoreThan } from 'typeorm'
import { findOrCreate, httpStatusOf, insertOrFail, TextTakenError, UniqueTextError } from 'typeorm-unique-text'
import { findHolder, rename } from 'typeorm-unique-text/names'
import { once } from 'typeorm-unique-text/once'
import { findOrCreateStream } from 'typeorm-unique-text/stream'
import { Bookmark, Invoice, Tenant } from './entities.js'
import { metrics } from './metrics.js'

declare module 'fastify' {
  interface FastifyRequest {
    /** The primary key of the tenant in the path. */
    tenant: number
  }
}

type NewBookmark = { url: string; title?: string; tags?: string[] }

const text = { type: 'string', minLength: 1, maxLength: 100_000 }
const body = (properties: object, required = Object.keys(properties)) => ({
  body: { type: 'object', required, additionalProperties: false, properties },
})

/** @param dataSource initialised, and migrated */
export function buildApp(dataSource: DataSource): FastifyInstance {
  const { manager } = dataSource
  const app = fastify({ logger: process.env.NODE_ENV === 'production' })

  app.get('/health', async () => {
    await dataSource.query('SELECT 1')
    return { status: 'ok' }
  })
  app.get('/metrics', async (_request, reply) => reply.type(metrics.contentType).send(await metrics.metrics()))

  app.post<{ Body: { handle: string } }>('/tenants', { schema: body({ handle: text }) }, async (request, reply) => {
    const { handle } = request.body
    return reply.status(201).send(await insertOrFail(manager, Tenant, { handle }))
  })
  app.register(ofTenant, { prefix: '/:tenant' })

  /** The routes of one tenant. Put your authentication before them, into another hook. */
  async function ofTenant(routes: FastifyInstance) {
    routes.decorateRequest('tenant', 0)
    routes.addHook<{ Params: { tenant: string } }>('onRequest', async (request, reply) => {
      const holder = await findHolder(manager, 'tenant', request.params.tenant, { former: true })
      if (!holder) return reply.callNotFound()
      if (holder.former) return reply.redirect(request.url.replace(/^\/[^/?]+/, `/${holder.name}`), 308)
      request.tenant = Number(holder.id.id)
    })

    routes.patch<{ Body: { handle: string } }>('/', { schema: body({ handle: text }) }, async (request) => {
      return await rename(manager, Tenant, request.tenant, { handle: request.body.handle })
    })

    const fields = { url: text, title: text, tags: { type: 'array', maxItems: 50, items: text } }
    routes.post<{ Body: NewBookmark }>('/bookmarks', { schema: body(fields, ['url']) }, async (request, reply) => {
      const { url, title, tags = [] } = request.body
      const tenant = { id: request.tenant }
      const values = { tenant, url, title, tags: tags.map((label) => ({ tenant, label })) }
      const { entity, created } = await findOrCreate(manager, Bookmark, values, { relations: { tags: 'findOrCreate' } })
      return reply.status(created ? 201 : 200).send(entity)
    })

    type Query = { url?: string; tag?: string; after: number }
    const querystring = { type: 'object', properties: { url: text, tag: text, after: { type: 'integer', default: 0 } } }
    routes.get<{ Querystring: Query }>('/bookmarks', { schema: { querystring } }, async (request) => {
      const { url, tag, after } = request.query
      const where = {
        tenant: { id: request.tenant },
        id: MoreThan(after),
        ...(url === undefined ? {} : { url }),
        ...(tag === undefined ? {} : { tags: { label: tag } }),
      }
      // With the strategy `query`, a bookmark that is found by one tag has all its tags.
      const loading = { relations: { tags: true }, relationLoadStrategy: 'query' } as const
      return await manager.find(Bookmark, { where, order: { id: 'ASC' }, take: 100, ...loading })
    })

    // One URL a line. Batches are committed separately, so a client that was interrupted sends the whole list again.
    routes.addContentTypeParser('text/uri-list', (_request, payload, done) => done(null, payload))
    routes.post<{ Body: Readable }>('/bookmarks/import', async (request) => {
      const counts = { created: 0, found: 0, rejected: 0 }
      const tenant = { id: request.tenant }
      async function* rows() {
        for await (const url of createInterface(request.body)) if (!/^(#|\s*$)/.test(url)) yield { tenant, url }
      }
      for await (const result of findOrCreateStream(dataSource, Bookmark, rows())) {
        counts['error' in result ? 'rejected' : result.created ? 'created' : 'found']++
      }
      return counts
    })

    const headers = { type: 'object', required: ['idempotency-key'], properties: { 'idempotency-key': text } }
    const invoice = { ...body({ cents: { type: 'integer', minimum: 1 } }), headers }
    routes.post<{ Body: { cents: number } }>('/invoices', { schema: invoice }, async (request, reply) => {
      const { cents } = request.body
      const token = JSON.stringify(['invoice', request.tenant, request.headers['idempotency-key']])
      const { answer, replayed } = await once(
        manager,
        token,
        async (own) => {
          const { number } = await own.save(Invoice, { tenant: { id: request.tenant }, cents })
          return { number, cents }
        },
        { request: { cents }, expires: '24 hours', patience: '10 seconds' },
      )
      return reply.status(201).header('idempotent-replayed', String(replayed)).send(answer)
    })
  }

  app.setErrorHandler((error, _request, reply) => {
    const status = httpStatusOf(error) ?? 500
    if (status === 500) throw error
    // The message of TypeORM's EntityNotFoundError (404) contains what was looked up.
    const { code, message } = error instanceof UniqueTextError ? error : { code: 'NOT_FOUND', message: 'no such row' }
    const taken = error instanceof TextTakenError ? error.taken.map(({ property }) => property) : undefined
    return reply.status(status).send({ code, message, taken })
  })
  return app
}
