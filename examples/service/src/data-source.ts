import 'reflect-metadata'
import { DataSource } from 'typeorm'
import { Name } from 'typeorm-unique-text/names'
import { OnceToken } from 'typeorm-unique-text/once'
import { Bookmark, Invoice, Tag, Tenant } from './entities.js'

/** For the service and for TypeORM's command line. The schema comes from migrations, without `synchronize`. */
export default new DataSource({
  type: 'postgres',
  url: process.env.DATABASE_URL,
  entities: [Tenant, Tag, Bookmark, Invoice, Name, OnceToken],
  migrations: [`${import.meta.dirname}/migrations/*.js`],
  extra: { max: 20, connectionTimeoutMillis: 5_000 },
})
