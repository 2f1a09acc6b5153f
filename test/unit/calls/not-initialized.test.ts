import 'reflect-metadata'
import { Column, DataSource, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { expect, test } from 'vitest'
import { DeclarationError, findOneByText, findOrCreate, insertOrFail, UniqueText } from '../../../src'
import { findHolder, rename } from '../../../src/names'
import { once, OnceToken } from '../../../src/once'

@Entity()
class Page {
  @PrimaryGeneratedColumn() id!: number
  @Column('text', { nullable: true }) title?: string | null
  @UniqueText() url!: string
}

const { manager } = new DataSource({ type: 'postgres', entities: [Page, OnceToken] })

test.each<[string, () => Promise<unknown>]>([
  ['findOrCreate', async () => await findOrCreate(manager, Page, { url: 'a' })],
  ['findOneByText', async () => await findOneByText(manager, Page, { url: 'a' })],
  ['insertOrFail', async () => await insertOrFail(manager, Page, { url: 'a' })],
  ['once', async () => await once(manager, 'token', async () => await Promise.resolve())],
  ['findHolder', async () => await findHolder(manager, 'handle', 'ada')],
  ['rename', async () => await rename(manager, Page, 1, { url: 'a' })],
])('%s before initialize() names the cause', async (_, call) => {
  const thrown: unknown = await call().catch((error: unknown) => error)
  expect(thrown).toBeInstanceOf(DeclarationError)
  expect(String(thrown)).toMatch(/is not initialized\. Await dataSource\.initialize\(\)/)
})
