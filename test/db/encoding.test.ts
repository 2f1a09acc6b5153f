import { Entity, PrimaryGeneratedColumn } from 'typeorm'
import { expect, test } from 'vitest'
import { findOrCreate, UniqueText, UnsupportedDatabaseError } from '../../src'
import { useDatabase } from '../support/database'

const db = useDatabase({ encoding: 'LATIN1' })

@Entity()
class Page {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() url!: string
}

test('a database of another encoding is refused before anything is written: its md5() sees other bytes', async () => {
  const { manager } = await db.dataSource([Page])
  await expect(findOrCreate(manager, Page, { url: 'é' })).rejects.toBeInstanceOf(UnsupportedDatabaseError)
  expect(await manager.count(Page)).toBe(0)
})
